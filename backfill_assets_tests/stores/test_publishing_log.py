"""Claims on partitions: one run at a time, dead runs fenced, and the files stay the truth."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import psycopg
import pyarrow as pa
import pytest

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.errors import SourceError, SourceNotReadyError, StaleAttemptError
from backfill_assets.core.operations import Outcome
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.publishing_log import (
    PublishingLog,
    RunClaims,
    backing_off,
    key_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from backfill_assets.core.operations import AttemptRecord
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import Attempt

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def catalogue(*units: str) -> Catalogue:
    return Catalogue(
        name="shops",
        closing=ClosingPolicy(zone=ZoneInfo("UTC")),
        first_day=date(2026, 4, 1),
        units=[Unit(name) for name in units],
        categories=[Category("product")],
        value_types=[ValueType("sales")],
    )


SHOPS = catalogue("north", "south")
NORTH = SHOPS.partition("product/sales", date(2026, 4, 3), "north")
SOUTH = SHOPS.partition("product/sales", date(2026, 4, 3), "south")
BOTH = PartitionSet.of(SHOPS, [NORTH, SOUTH])
NOTHING = PartitionSet.empty(SHOPS)


@pytest.fixture
def now() -> list[datetime]:
    """The present instant; a test moves it."""
    return [NOON]


@pytest.fixture
def log(database: str, now: list[datetime]) -> PublishingLog:
    return PublishingLog(lambda: database, lambda: now[0])


@pytest.fixture
def store(tmp_path: Path) -> LocalPartitionStore:
    made = LocalPartitionStore(tmp_path / "store", [SHOPS])
    made.prepare()
    return made


class Run:
    """A run: its directory in the store, and its claims."""

    def __init__(self, attempt: Attempt[Any], claims: RunClaims) -> None:
        self.attempt = attempt
        self.claims = claims

    def publish(self, *partitions: Partition, sales: float = 1.0) -> None:
        for partition in partitions:
            self.attempt.stage(partition, rows(partition, sales))
        self.attempt.publish()

    def complete(self, *partitions: Partition) -> None:
        self.claims.complete(dict.fromkeys(partitions, "digest"))


@pytest.fixture
def run(log: PublishingLog, store: LocalPartitionStore) -> Any:
    @contextmanager
    def opened(run_id: str) -> Iterator[Run]:
        claims = log.of_run(run_id, store)
        with store.attempt(run_id) as attempt:
            try:
                yield Run(attempt, claims)
            finally:
                claims.close()

    return opened


def rows(partition: Partition, sales: float) -> pa.Table:
    return pa.table(
        {
            "date": pa.array([partition.day], pa.date32()),
            "unit": [partition.unit],
            "product": ["tea"],
            "value": [sales],
        }
    )


def attempts_at(database: str, partition: Partition) -> list[AttemptRecord]:
    log = IdempotencyLog(lambda: database, worker="reader", clock=lambda: NOON)
    trail = log.trail(key_of(partition))
    log.close()
    return list(trail[0].attempts)


def outcomes(database: str, partition: Partition) -> list[tuple[str, Outcome]]:
    return [(a.worker, a.outcome) for a in attempts_at(database, partition)]


def fail_once(run: Any, *partitions: Partition, says: str = "again") -> None:
    with run("failing") as one:
        wanted = PartitionSet.of(SHOPS, partitions)
        assert one.claims.take(wanted, again=NOTHING).granted == wanted
        one.claims.fail(partitions, SourceError(says))


def waits(log: PublishingLog) -> list[timedelta]:
    return [failure.retry_at - failure.failed_at for failure in log.failures(SHOPS)]


def test_what_one_run_was_granted_another_is_not(run: Any) -> None:
    with run("one") as one, run("two") as two:
        first = one.claims.take(PartitionSet.of(SHOPS, [NORTH]), again=NOTHING)
        second = two.claims.take(BOTH, again=NOTHING)

    assert list(first.granted) == [NORTH]
    assert list(second.granted) == [SOUTH]
    assert list(second.busy) == [NORTH]


def test_asking_again_for_what_is_its_own_is_granted_and_no_other_attempt(
    run: Any, database: str
) -> None:
    with run("one") as one:
        one.claims.take(BOTH, again=NOTHING)
        again = one.claims.take(BOTH, again=NOTHING)

    assert again.granted == BOTH
    assert len(attempts_at(database, NORTH)) == 1


def test_what_a_run_gives_back_is_free_for_the_next(run: Any) -> None:
    with run("one") as one:
        one.claims.take(BOTH, again=NOTHING)
    with run("two") as two:
        assert two.claims.take(BOTH, again=NOTHING).granted == BOTH


def test_a_dead_runs_work_is_taken_over_at_once_and_it_can_publish_nothing_more(
    run: Any, store: LocalPartitionStore, log: PublishingLog, database: str
) -> None:
    dead = log.of_run("dead", store)
    dead.take(BOTH, again=NOTHING)  # no process holds its directory
    with run("two") as two:
        taken = two.claims.take(BOTH, again=NOTHING)
        two.publish(NORTH, SOUTH)
        two.complete(NORTH, SOUTH)
    dead.complete({NORTH: "other"})
    dead.close()

    assert taken.granted == BOTH
    assert outcomes(database, NORTH) == [("dead", Outcome.FENCED), ("two", Outcome.SUCCEEDED)]


def test_the_directory_of_a_run_that_lost_its_work_is_gone_before_the_target_is_looked_at(
    run: Any, store: LocalPartitionStore, now: list[datetime]
) -> None:
    with run("slow") as slow, run("two") as two:
        slow.claims.take(BOTH, again=NOTHING)
        slow.publish(NORTH)
        slow.attempt.stage(SOUTH, rows(SOUTH, 2.0))
        now[0] += timedelta(hours=24)  # its lease runs out, though its process lives
        taken = two.claims.take(BOTH, again=NOTHING)
        with pytest.raises(StaleAttemptError):
            slow.attempt.publish()

    assert list(taken.granted) == [SOUTH]
    assert list(taken.committed) == [NORTH]  # published by the first, and not made again
    assert list(store.scan(SHOPS).committed) == [NORTH]


def test_what_another_run_has_published_meanwhile_is_found_and_not_made_again(run: Any) -> None:
    with run("one") as one:
        one.claims.take(BOTH, again=NOTHING)
        one.publish(NORTH)
        one.complete(NORTH)
        with run("two") as two:
            taken = two.claims.take(BOTH, again=NOTHING)

    assert list(taken.committed) == [NORTH]
    assert list(taken.busy) == [SOUTH]


def test_a_row_that_says_completed_does_not_stop_a_lost_file_from_being_made_again(
    run: Any, tmp_path: Path, database: str
) -> None:
    with run("one") as one:
        one.claims.take(BOTH, again=NOTHING)
        one.publish(NORTH, SOUTH)
        one.complete(NORTH, SOUTH)
    (tmp_path / "store/shops/product/sales/v1/2026-04-03/north.parquet").unlink()

    with run("two") as two:
        taken = two.claims.take(BOTH, again=NOTHING)

    assert list(taken.granted) == [NORTH]
    assert list(taken.committed) == [SOUTH]
    first, second = attempts_at(database, NORTH)
    assert first.note == "what it had made was not there any more"
    assert second.number == 2


def test_a_file_that_stands_is_not_made_again_when_the_log_was_lost(
    run: Any, database: str
) -> None:
    with run("one") as one:
        one.claims.take(BOTH, again=NOTHING)
        one.publish(NORTH, SOUTH)
        one.complete(NORTH, SOUTH)
    with psycopg.connect(database) as connection:
        connection.execute("DROP TABLE idempotency_log, idempotency_attempt, alert, log_schema")

    with run("two") as two:
        two.claims.take(BOTH, again=NOTHING)
        two.attempt.stage(NORTH, rows(NORTH, 1.0))
        (published,) = two.attempt.publish()

    assert published.adopted  # the plan, which reads the files, would not even have asked


def test_restating_opens_a_new_generation_and_keeps_the_old_result_in_the_trail(
    run: Any, database: str
) -> None:
    with run("one") as one:
        one.claims.take(BOTH, again=NOTHING)
        one.publish(NORTH)
        one.complete(NORTH)
    with run("two") as two:
        taken = two.claims.take(BOTH, again=PartitionSet.of(SHOPS, [NORTH]))

    assert NORTH in taken.granted
    first, second = attempts_at(database, NORTH)
    assert (first.generation, first.result, first.note) == (1, "digest", "reopened: restated")
    assert second.generation == 2


def test_an_older_version_of_the_log_overwrites_no_file(
    run: Any, store: LocalPartitionStore, database: str
) -> None:
    """The database was restored from a time before the partition was published."""
    with run("one") as one:
        one.claims.take(BOTH, again=NOTHING)
        with psycopg.connect(database) as connection:
            connection.execute("CREATE TABLE yesterday AS SELECT * FROM idempotency_log")
        one.publish(NORTH, sales=1.0)
        one.complete(NORTH)
    with psycopg.connect(database) as connection:
        connection.execute("TRUNCATE idempotency_log, idempotency_attempt")
        connection.execute("INSERT INTO idempotency_log SELECT * FROM yesterday")

    with run("two") as two:
        taken = two.claims.take(BOTH, again=NOTHING)

    assert list(taken.granted) == [SOUTH]
    assert list(taken.committed) == [NORTH]
    assert store.read(NORTH)["value"].to_pylist() == [1.0]


def test_nothing_is_known_at_first(log: PublishingLog) -> None:
    assert log.failures(SHOPS) == []


def test_a_failure_is_remembered_with_its_reason_and_its_next_attempt(
    log: PublishingLog, run: Any
) -> None:
    fail_once(run, NORTH, says="no such table")

    (failure,) = log.failures(SHOPS)

    assert failure.partition == NORTH
    assert (failure.attempts, failure.error) == (1, "no such table")
    assert (failure.failed_at, failure.retry_at) == (NOON, NOON + MINUTE)


def test_the_next_attempt_knows_why_the_last_one_failed(run: Any) -> None:
    fail_once(run, NORTH, says="no such table")
    with run("next") as following:
        following.claims.take(BOTH, again=NOTHING)
        attempt = following.claims.attempt(NORTH)

    assert attempt.number == 2
    assert attempt.previous.error_message == "no such table"


def test_each_failure_doubles_the_wait_up_to_an_hour(log: PublishingLog, run: Any) -> None:
    seen = []
    for _ in range(9):
        fail_once(run, NORTH)
        seen += waits(log)

    assert [wait / MINUTE for wait in seen] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_partitions_back_off_one_by_one(log: PublishingLog, run: Any) -> None:
    fail_once(run, NORTH, SOUTH)
    fail_once(run, NORTH)

    failures = log.failures(SHOPS)

    after = NOON + MINUTE
    assert list(backing_off(SHOPS, failures, NOON)) == [NORTH, SOUTH]
    assert list(backing_off(SHOPS, failures, after)) == [NORTH]
    assert list(backing_off(SHOPS, failures, after + MINUTE)) == []


def test_a_source_that_is_not_ready_spends_no_attempt_and_waits_the_shortest_time(
    log: PublishingLog, run: Any
) -> None:
    for _ in range(4):
        with run("waiting") as one:
            one.claims.take(BOTH, again=NOTHING)
            one.claims.put_off([NORTH], SourceNotReadyError("not ready"))

    (failure,) = log.failures(SHOPS)

    assert failure.attempts == 0
    assert waits(log) == [MINUTE]


def test_a_run_that_was_killed_is_no_failure_of_its_partitions(
    log: PublishingLog, store: LocalPartitionStore
) -> None:
    dead = log.of_run("dead", store)
    dead.take(BOTH, again=NOTHING)

    log.end_run("dead")
    dead.close()

    assert log.failures(SHOPS) == []


def test_a_person_is_needed_from_the_fifth_failure_on(log: PublishingLog, run: Any) -> None:
    alerts = []
    for _ in range(6):
        fail_once(run, NORTH)
        alerts += [failure.needs_a_person for failure in log.failures(SHOPS)]

    assert alerts == [False, False, False, False, True, True]


def test_what_stands_committed_is_forgotten_and_the_others_are_not(
    log: PublishingLog, run: Any
) -> None:
    fail_once(run, NORTH, SOUTH)

    log.forget([NORTH])

    assert [failure.partition for failure in log.failures(SHOPS)] == [SOUTH]


def test_what_the_catalogue_no_longer_has_is_left_out(log: PublishingLog, run: Any) -> None:
    fail_once(run, NORTH, SOUTH)

    assert [f.partition.unit for f in log.failures(catalogue("south"))] == ["south"]
