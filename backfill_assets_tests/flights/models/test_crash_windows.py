"""A row and a file: killed at any point between them, the next run makes both, once.

The order is: each step under the log, the row with the record of its step, then the file. The file
stays the truth about what is missing; a row without a file is found again by its key.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.core.errors import DuplicateEffectError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.flights.models.catalogue import FLIGHT_MODELS
from backfill_assets.flights.models.scoring import Scoring
from backfill_assets.flights.models.source import ScoredFlights
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.splitting import split
from backfill_assets_tests.flights.models.workbench import AFTER_THE_LEASE, Workbench
from backfill_assets_tests.stores.children import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from backfill_assets.core.operations import Attempt, Claim, Json, Operation
    from backfill_assets.stores.log.transactions import Transaction

DAY = date(2013, 7, 4)
STEPS = ("preprocess", "score_risk", "score_anomaly", "save")
POINTS = [
    *(f"{when} {what} {step}" for step in STEPS for what in ("claim", "complete")
      for when in ("before", "after")),
    "after commit save",
    "before publish file",
    "after publish file",
]  # fmt: skip
QUERY = FLIGHT_MODELS.query("flight/risk")
PARTITION = FLIGHT_MODELS.partition("flight/risk", DAY, "JFK")


def die_at(point: str, here: str) -> None:
    if point == here:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalLog(IdempotencyLog):
    """A log whose process is killed at one point."""

    point = ""

    def claim_many(
        self,
        operation: Operation,
        payloads: Mapping[str, Json],
        *,
        disproved: Mapping[str, int] | None = None,
    ) -> dict[str, Claim]:
        die_at(self.point, f"before claim {operation.name}")
        claims = super().claim_many(operation, payloads, disproved=disproved)
        die_at(self.point, f"after claim {operation.name}")
        return claims

    def complete_many(
        self, results: Mapping[Attempt, Json], *, connection: psycopg.Connection | None = None
    ) -> list[Attempt]:
        name = next(iter(results)).operation.name
        die_at(self.point, f"before complete {name}")
        fenced = super().complete_many(results, connection=connection)
        die_at(self.point, f"after complete {name}")
        return fenced

    @contextmanager
    def writing(self, attempt: Attempt) -> Iterator[Transaction]:
        with super().writing(attempt) as work:
            yield work
        die_at(self.point, f"after commit {attempt.operation.name}")


class MortalScoring(Scoring):
    """Scoring with such a log."""

    def log(self) -> IdempotencyLog:
        log = MortalLog(self.log_url, worker=self.worker(), clock=self.clock)
        log.point = self.worker()  # the point's name serves as the worker's
        return log


def scoring_that_dies(bench: Workbench, point: str) -> Scoring:
    return MortalScoring(
        source_url=lambda: bench.flights_url,
        log_url=lambda: bench.url,
        folder=bench.folder,
        address=lambda: bench.home / "address.json",
        worker=lambda: point,
        clock=bench.clock,
    )


def publish(bench: Workbench, root: Path, point: str = "") -> None:
    """Read the source and publish its file, as a run does."""
    frame = ScoredFlights(scoring_that_dies(bench, point)).read("flight", ["risk"], [DAY], ["JFK"])
    store = LocalPartitionStore(root, [FLIGHT_MODELS])
    wanted = PartitionSet.of(FLIGHT_MODELS, [PARTITION])
    with store.attempt(f"run-{point.replace(' ', '-')}") as attempt:
        for partition, table in split(frame, [QUERY], wanted):
            attempt.stage(partition, table)
        die_at(point, "before publish file")
        attempt.publish(replace=False)
        die_at(point, "after publish file")


def committed_digest(root: Path) -> str:
    return LocalPartitionStore(root, [FLIGHT_MODELS]).records([PARTITION])[PARTITION].digest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    LocalPartitionStore(root, [FLIGHT_MODELS]).prepare()
    return root


@pytest.fixture
def undisturbed(workbench: Workbench, tmp_path: Path) -> Callable[[], tuple[str, str]]:
    """Digests of the row and the file of a run that nobody kills."""

    def run() -> tuple[str, str]:
        root = tmp_path / "undisturbed"
        LocalPartitionStore(root, [FLIGHT_MODELS]).prepare()
        publish(workbench, root)
        ((_, digest),) = workbench.rows()
        return digest, committed_digest(root)

    return run


def test_killed_at_any_point_the_next_run_ends_with_one_row_and_one_file(
    workbench: Workbench, tmp_path: Path, undisturbed: Callable[[], tuple[str, str]]
) -> None:
    with workbench.server():
        row, file = undisturbed()
        for number, point in enumerate(POINTS):
            forget(workbench)
            root = tmp_path / f"store-{number}"
            LocalPartitionStore(root, [FLIGHT_MODELS]).prepare()
            child = Child(lambda root=root, point=point: publish(workbench, root, point))  # type: ignore[misc]
            assert child.exit_code() == -signal.SIGKILL, point
            workbench.clock.pass_by(AFTER_THE_LEASE)
            if point != "after publish file":
                assert not LocalPartitionStore(root, [FLIGHT_MODELS]).scan(FLIGHT_MODELS).committed
            publish(workbench, root)
            assert workbench.rows() == [("JFK", row)], point
            assert committed_digest(root) == file, point


def test_a_row_without_its_file_is_found_by_its_key_and_nothing_is_scored_again(
    workbench: Workbench, root: Path
) -> None:
    with workbench.server():
        child = Child(lambda: publish(workbench, root, "before publish file"))
        assert child.exit_code() == -signal.SIGKILL
        before = workbench.outcomes(workbench.subject())
        replies = workbench.ask("SELECT idempotency_key FROM http_reply")
        publish(workbench, root)
    assert before == {step: ["SUCCEEDED"] for step in STEPS}
    assert workbench.outcomes(workbench.subject()) == before
    assert workbench.ask("SELECT idempotency_key FROM http_reply") == replies
    assert len(replies) == 2


def test_a_lost_log_adopts_the_row_that_was_kept(workbench: Workbench, root: Path) -> None:
    with workbench.server():
        publish(workbench, root)
        rows = workbench.rows()
        for table in ("idempotency_log", "idempotency_attempt", "http_reply"):
            truncate(workbench, table)
        publish(workbench, root)
    assert workbench.rows() == rows
    assert workbench.outcomes(workbench.subject())["save"] == ["SUCCEEDED"]


def test_other_scores_under_the_same_key_are_refused_and_name_their_owner(
    workbench: Workbench,
) -> None:
    subject = workbench.subject()
    with psycopg.connect(workbench.url) as connection:
        connection.execute(
            "INSERT INTO delay_scores (date, unit, model, flights, risks, anomalies, digest,"
            " saved_by) VALUES (%s, 'JFK', %s, '{UA1}', '{0.5}', '{0.5}', 'other', 'a person')",
            [DAY, workbench.card.version],
        )
    with workbench.server() as (host, port):
        progress = workbench.run(f"http://{host}:{port}", subject, log=workbench.log("test"))
    (problem,) = progress.problems.values()
    assert isinstance(problem.__cause__, DuplicateEffectError)
    assert "attempt 1 of save flight_models/2013-07-04/JFK/" in str(problem)
    assert "other… by a person" in str(problem)
    assert [digest for _, digest in workbench.rows()] == ["other"]


def forget(workbench: Workbench) -> None:
    for table in ("delay_scores", "idempotency_log", "idempotency_attempt", "http_reply"):
        truncate(workbench, table)


def truncate(workbench: Workbench, table: str) -> None:
    with psycopg.connect(workbench.url) as connection:
        connection.execute(f"TRUNCATE {table}".encode())
