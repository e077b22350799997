"""The log's database is restored from a backup: what it says of files is told, and mended."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from backfill_assets.cli import releases as commands
from backfill_assets.core.operations import Outcome
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.resources import log_drift
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.run_requests import coverage_job_name
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.postgres.programs import find_programs
from backfill_assets.stores.publishing_log import PublishingLog, key_of
from backfill_assets_tests.command_line import run_command
from backfill_assets_tests.resources.dagster_of_tests import Dagster, a_range
from backfill_assets_tests.resources.small_project import (
    DAY_5,
    EXPECTED,
    SHOPS,
    SOLD,
    Shops,
    a_project,
    fill,
)
from backfill_assets_tests.stores.examples import files_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backfill_assets.core.operations import AttemptRecord
    from backfill_assets.core.partitions import Partition
    from backfill_assets.resources.project import Project

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

Run = tuple[int, str]
NEWEST = a_range("2024-03-05|Paris", "2024-03-05|Nice")
PARIS = SHOPS.partition("article/sold", DAY_5, "Paris")
REVENUE_OF_PARIS = SHOPS.partition("article/revenue", DAY_5, "Paris")
AT_WORK = "at work in the log by a dead run, though the file stands"
OTHER_DIGEST = "completed in the log with other content than the file"
COMPARED = "newest partitions compared with the log"
UNLOGGED = "of these without a completed attempt in the log"


@dataclass
class Backup:
    """A backup of the log's database, as an operator makes and restores one."""

    database: str
    path: Path

    def make(self) -> None:
        self._execute("pg_dump", "--format=custom", f"--file={self.path}")

    def restore(self) -> None:
        self._execute("pg_restore", "--clean", "--if-exists", "--exit-on-error", str(self.path))

    def _execute(self, program: str, *arguments: str) -> None:
        path = find_programs(None).folder / program
        subprocess.run([path, f"--dbname={self.database}", *arguments], check=True)


@pytest.fixture
def source() -> Shops:
    return Shops()


@pytest.fixture
def project(root: Path, database: str, source: Shops) -> Project:
    log = PublishingLog(lambda: database, RealClock().now)
    return replace(a_project(root, source=source), publishing_log=log)


@pytest.fixture
def dagster(project: Project) -> Iterator[Dagster]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Dagster(project, instance)


@pytest.fixture
def restored(dagster: Dagster, source: Shops, database: str, tmp_path: Path) -> Dagster:
    """A log of the time before most of the grid was made, and one day was restated.

    The backup was made while the second run was at work; three partitions were completed by then.
    """
    backup = Backup(database, tmp_path / "log.dump")
    dagster.ask([SOLD], NEWEST)

    def back_up_once() -> None:
        source.on_read = lambda: None
        backup.make()

    source.on_read = back_up_once
    dagster.complete()
    source.factor = 2
    dagster.ask([SOLD], NEWEST | {"backfill_assets/on_committed": "replace"})
    backup.restore()
    return dagster


@pytest.fixture
def command(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Run]:
    """``command("reconcile", …)`` as in a terminal: its exit code, and what it said."""
    monkeypatch.setattr(commands, "project", lambda: project)

    def run(*arguments: str) -> Run:
        said = run_command(monkeypatch, capsys, *arguments)
        return said.code, said.out

    return run


def check(dagster: Dagster) -> Any:
    job = dagster.repository.get_job(coverage_job_name(SHOPS))
    result = job.execute_in_process(instance=dagster.instance)
    found = {c.check_name: c for c in result.get_asset_check_evaluations()}
    return found["log_agrees_with_files"]


def attempts_at(database: str, partition: Partition) -> tuple[AttemptRecord, ...]:
    log = IdempotencyLog(lambda: database, worker="reader", clock=RealClock().now)
    with closing(log):
        (found,) = log.trail(key_of(partition))
    return found.attempts


def test_the_check_tells_dead_runs_and_other_digests_and_counts_what_the_log_has_not(
    restored: Dagster,
) -> None:
    told = check(restored)

    assert not told.passed
    assert told.description == f"3 {AT_WORK}; 3 {OTHER_DIGEST}"
    at_work = str(told.metadata[AT_WORK].value).splitlines()
    second_run = restored.instance.get_run_records(ascending=True)[1].dagster_run.run_id
    assert f"* {REVENUE_OF_PARIS}: run {second_run}" in at_work
    assert str(PARIS) in str(told.metadata[OTHER_DIGEST].value)
    assert told.metadata[COMPARED].value == EXPECTED
    assert told.metadata[UNLOGGED].value == EXPECTED - 3


def test_the_next_tick_ends_the_dead_runs_and_leaves_word_in_the_trail(
    restored: Dagster, root: Path, database: str
) -> None:
    before = files_below(root)

    assert restored.settled() is not None

    assert files_below(root) == before
    assert check(restored).description == f"3 {OTHER_DIGEST}"
    (attempt,) = attempts_at(database, REVENUE_OF_PARIS)
    assert attempt.outcome is Outcome.UNKNOWN
    assert attempt.note == ("its worker was found dead; what it was to make stands all the same")


def test_a_run_that_lives_is_let_alone(project: Project, dagster: Dagster, database: str) -> None:
    dagster.complete()
    with project.store.attempt("alive"), project.claims("alive") as claims:
        assert claims is not None
        paris = PartitionSet.of(SHOPS, [PARIS])
        claims.take(paris, again=paris)
        assert check(dagster).passed
        assert dagster.settled() is not None
        claims.complete({PARIS: project.store.records([PARIS])[PARIS].digest})

    assert attempts_at(database, PARIS)[-1].outcome is Outcome.SUCCEEDED
    assert check(dagster).passed


def test_reconcile_tells_all_and_mends_the_log_alone(
    restored: Dagster, command: Callable[..., Run], root: Path, database: str
) -> None:
    before = files_below(root)
    code, said = command("reconcile", "--json")
    found = json.loads(said)["shops"]
    assert code == 3
    assert {kind: len(names) for kind, names in found["findings"].items()} == {
        AT_WORK: 3,
        OTHER_DIGEST: 3,
    }
    assert found["without_a_completed_attempt"] == EXPECTED - 3
    (old,) = attempts_at(database, PARIS)

    code, said = command("reconcile", "--repair")

    assert code == 0
    assert f"{PARIS}: the log has its digest" in said
    assert f"{REVENUE_OF_PARIS}: no run is at work on it" in said
    assert command("reconcile") == (
        0,
        f"shops: {EXPECTED - 6} committed partitions without a completed attempt in the log: they "
        "were adopted, or the log is younger or was restored\n"
        "shops: the log database agrees with the files\n",
    )
    assert check(restored).passed
    (new,) = attempts_at(database, PARIS)
    assert (old.result, old.note) == (None, None)
    assert new.note == "corrected: its file has other content"
    assert isinstance(new.result, str)  # the old digest
    assert files_below(root) == before


def test_a_log_that_was_thrown_away_is_no_disagreement(project: Project, dagster: Dagster) -> None:
    fill(project)

    told = check(dagster)

    assert told.passed
    assert told.metadata[UNLOGGED].value == EXPECTED


def test_the_check_compares_the_newest_and_reconcile_all(
    restored: Dagster, command: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_drift, "NEWEST", 2)

    told = check(restored)
    found = json.loads(command("reconcile", "--json")[1])["shops"]["findings"]

    assert told.description == f"3 {AT_WORK}; 2 {OTHER_DIGEST}"
    assert (told.metadata[COMPARED].value, told.metadata[UNLOGGED].value) == (2, 0)
    assert len(found[OTHER_DIGEST]) == 3


def test_what_was_restated_by_another_run_meanwhile_is_not_told(
    project: Project, dagster: Dagster, source: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the log and the look at a file, a run replaces both."""
    dagster.complete()
    records = project.store.records
    source.factor = 2

    def records_after_restating(partitions: Any) -> Any:
        monkeypatch.undo()
        dagster.ask([SOLD], NEWEST | {"backfill_assets/on_committed": "replace"})
        return records(partitions)

    monkeypatch.setattr(
        type(project.store), "records", lambda _, wanted: records_after_restating(wanted)
    )

    agreement = log_drift.reconcile_log(project, SHOPS, repair=True)

    assert (agreement.findings, agreement.repairs) == ([], [])


def test_a_damaged_file_is_left_to_the_check_that_names_it(
    project: Project, dagster: Dagster
) -> None:
    dagster.complete()
    path = Path(project.store.location(PARIS))
    path.write_bytes(path.read_bytes()[:-20])

    assert check(dagster).passed
