"""A run that was killed is found by the lock of its attempt; one that lives is left alone."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from backfill_assets.core.errors import StaleAttemptError, StoreUnreadableError
from backfill_assets.resources.abandoned_runs import GRACE, fail_abandoned_runs, unfinished_runs
from backfill_assets_tests.resources.dagster_of_tests import Dagster, a_range
from backfill_assets_tests.resources.small_project import (
    DAY_5,
    REVENUE,
    SHOPS,
    SOLD,
    Shops,
    a_project,
    committed,
    fill,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

NEWEST = a_range("2024-03-05|Paris", "2024-03-05|Nice")
LONG_AGO = GRACE + timedelta(seconds=5)
STARTED = dg.DagsterRunStatus.STARTED

# Opens the attempt of a run, stages one partition, and is killed.
KILLED = """
import os, sys
from pathlib import Path
from backfill_assets_tests.resources.small_project import DAY_5, SHOPS, a_project
import pyarrow as pa
with a_project(Path(sys.argv[1])).store.attempt(sys.argv[2]) as attempt:
    rows = pa.table({"article": ["A0"], "value": pa.array([1], pa.int64())})
    attempt.stage(SHOPS.partition("article/sold", DAY_5, "Paris"), rows)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def dagster(root: Path) -> Iterator[Dagster]:
    with dg.DagsterInstance.ephemeral() as instance:
        project = a_project(root)
        project.store.prepare()
        yield Dagster(project, instance)


def status(dagster: Dagster, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = dagster.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def attempts(root: Path) -> list[str]:
    return [path.name for path in (root / ".attempts").iterdir() if path.is_dir()]


def test_while_the_store_is_away_no_run_is_taken_for_dead(dagster: Dagster, root: Path) -> None:
    run = dagster.unfinished(STARTED, [SOLD, REVENUE], NEWEST, started=LONG_AGO)
    away = root.with_name("away")  # as when its disk is unmounted
    with dagster.project.store.attempt(run.run_id):
        root.rename(away)
        with pytest.raises(StoreUnreadableError, match="not mounted"):
            dagster.asks()
        away.rename(root)
        asked = {key.path[1] for r in dagster.asks() for key in r.asset_selection or ()}
        assert asked == {"hour"}  # what the run is not at work on

    assert status(dagster, run) is STARTED


@pytest.mark.parametrize("state", [STARTED, dg.DagsterRunStatus.CANCELING])
def test_a_killed_run_is_failed_after_the_grace_and_its_work_is_asked_for_in_the_same_tick(
    dagster: Dagster, root: Path, state: dg.DagsterRunStatus
) -> None:
    run = dagster.unfinished(state, [SOLD, REVENUE], NEWEST, started=LONG_AGO)
    subprocess.run([sys.executable, "-c", KILLED, str(root), run.run_id], check=False)
    assert len(attempts(root)) == 1

    assert len(dagster.asks()) == 2
    assert status(dagster, run) is dg.DagsterRunStatus.FAILURE
    assert attempts(root) == []
    (failure,) = dagster.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    assert "No process holds this run's attempt" in (failure.get_dagster_event().message or "")


def test_a_run_that_has_just_started_is_given_its_grace(dagster: Dagster) -> None:
    run = dagster.unfinished(STARTED, [SOLD, REVENUE], NEWEST, started=GRACE / 2)
    assert len(dagster.asks()) == 1  # the other grid's
    assert status(dagster, run) is STARTED


def test_a_run_that_works_is_left_alone_however_long_it_takes(dagster: Dagster) -> None:
    run = dagster.unfinished(STARTED, [SOLD, REVENUE], NEWEST, started=timedelta(days=2))
    with dagster.project.store.attempt(run.run_id) as attempt:
        assert len(dagster.asks()) == 1
        assert status(dagster, run) is STARTED
        rows = Shops().read("article", ["sold"], [DAY_5], ["Paris"])
        attempt.stage(
            SHOPS.partition("article/sold", DAY_5, "Paris"),
            rows.rename_columns(["date", "unit", "article", "value"]),
        )
        attempt.publish()
    assert len(committed(dagster.project)) == 1


def test_no_run_is_given_up_while_the_store_is_away(dagster: Dagster, root: Path) -> None:
    run = dagster.unfinished(STARTED, [SOLD, REVENUE], NEWEST, started=LONG_AGO)
    with dagster.project.store.attempt(run.run_id):
        root.rename(root.with_name("elsewhere"))
        root.mkdir()  # a mount point without its disk
        with pytest.raises(StoreUnreadableError, match="not mounted"):
            dagster.asks()
        assert status(dagster, run) is STARTED
        root.rmdir()
        root.with_name("elsewhere").rename(root)
        dagster.asks()
        assert status(dagster, run) is STARTED


def failed_after(dagster: Dagster, wait: timedelta) -> list[str]:
    """Return which runs are given up when nothing has happened for so long."""
    return fail_abandoned_runs(
        dagster.instance,
        dagster.project,
        unfinished_runs(dagster.instance, [SHOPS]),
        now=datetime.now(UTC) + wait,
    )


def test_a_queued_run_is_never_abandoned_however_long_it_waits(dagster: Dagster) -> None:
    run = dagster.unfinished(dg.DagsterRunStatus.QUEUED, [SOLD, REVENUE], NEWEST)
    assert failed_after(dagster, timedelta(days=2)) == []
    assert status(dagster, run) is dg.DagsterRunStatus.QUEUED


@pytest.mark.parametrize("state", [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING])
def test_a_run_that_never_came_up_is_abandoned_after_the_grace(
    dagster: Dagster, state: dg.DagsterRunStatus
) -> None:
    run = dagster.unfinished(state, [SOLD, REVENUE], NEWEST)
    assert failed_after(dagster, GRACE / 2) == []
    assert status(dagster, run) is state
    assert failed_after(dagster, LONG_AGO) == [run.run_id]
    assert status(dagster, run) is dg.DagsterRunStatus.FAILURE


def test_a_run_that_wakes_up_after_it_was_given_up_publishes_nothing(dagster: Dagster) -> None:
    run = dagster.unfinished(STARTED, [SOLD, REVENUE], NEWEST, started=LONG_AGO)
    with dagster.project.store.attempt(run.run_id) as asleep:
        rows = Shops(factor=3).read("article", ["sold"], [DAY_5], ["Paris"])
        asleep.stage(
            SHOPS.partition("article/sold", DAY_5, "Paris"),
            rows.rename_columns(["date", "unit", "article", "value"]),
        )
        dagster.project.store.revoke(run.run_id)
        dagster.tick()
        assert status(dagster, run) is dg.DagsterRunStatus.FAILURE
        with pytest.raises(StaleAttemptError, match="was revoked"):
            asleep.publish()
    assert not committed(dagster.project)


def test_only_runs_over_partitions_of_ours_are_looked_at(dagster: Dagster) -> None:
    @dg.asset
    def other() -> None: ...

    job = dg.Definitions(
        assets=[other],
        jobs=[dg.define_asset_job("others", selection=dg.AssetSelection.assets(other))],
    ).resolve_job_def("others")
    dagster.instance.create_run_for_job(job, status=STARTED)
    ours = dagster.unfinished(STARTED, [SOLD], NEWEST)
    records = unfinished_runs(dagster.instance, [SHOPS])
    assert [record.dagster_run.run_id for record in records] == [ours.run_id]


def test_a_new_start_of_everything_gives_no_grace(dagster: Dagster) -> None:
    fill(dagster.project, days=[])
    run = dagster.unfinished(STARTED, [SOLD, REVENUE], NEWEST, started=timedelta(seconds=1))
    failed = fail_abandoned_runs(
        dagster.instance,
        dagster.project,
        unfinished_runs(dagster.instance, [SHOPS]),
        now=datetime.now(UTC),
        grace=timedelta(0),
    )
    assert failed == [run.run_id]
    assert status(dagster, run) is dg.DagsterRunStatus.FAILURE
