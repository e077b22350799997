"""The memory of failed partitions: counts, waits, and nothing that work depends on."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.stores.failures import FailureMemory, backing_off

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


@pytest.fixture
def memory(database: str) -> FailureMemory:
    return FailureMemory(lambda: database)


def waits(memory: FailureMemory) -> list[timedelta]:
    return [failure.retry_at - failure.failed_at for failure in memory.failures(SHOPS)]


def test_nothing_is_known_at_first(memory: FailureMemory) -> None:
    assert memory.failures(SHOPS) == []


def test_a_failure_is_remembered_with_its_reason_and_its_next_attempt(
    memory: FailureMemory,
) -> None:
    memory.note([NORTH], "no such table", NOON)

    (failure,) = memory.failures(SHOPS)

    assert failure.partition == NORTH
    assert (failure.attempts, failure.error) == (1, "no such table")
    assert (failure.failed_at, failure.retry_at) == (NOON, NOON + MINUTE)


def test_each_failure_doubles_the_wait_up_to_an_hour(memory: FailureMemory) -> None:
    seen = []
    for _ in range(9):
        memory.note([NORTH], "again", NOON)
        seen += waits(memory)

    assert [wait / MINUTE for wait in seen] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_thousand_failures_still_wait_an_hour(memory: FailureMemory) -> None:
    for _ in range(200):
        memory.note([NORTH], "again", NOON)

    assert waits(memory) == [60 * MINUTE]


def test_partitions_back_off_one_by_one(memory: FailureMemory) -> None:
    memory.note([NORTH, SOUTH], "both", NOON)
    memory.note([NORTH], "north again", NOON)

    failures = memory.failures(SHOPS)

    after = NOON + MINUTE
    assert list(backing_off(SHOPS, failures, NOON)) == [NORTH, SOUTH]
    assert list(backing_off(SHOPS, failures, after)) == [NORTH]
    assert list(backing_off(SHOPS, failures, after + MINUTE)) == []


def test_a_source_that_is_not_ready_spends_no_attempt_and_waits_the_shortest_time(
    memory: FailureMemory,
) -> None:
    for _ in range(4):
        memory.note_waiting([NORTH], "not ready", NOON)

    (failure,) = memory.failures(SHOPS)

    assert failure.attempts == 0
    assert waits(memory) == [MINUTE]


def test_a_person_is_needed_from_the_fifth_failure_on(memory: FailureMemory) -> None:
    alerts = []
    for _ in range(6):
        memory.note([NORTH], "again", NOON)
        alerts += [failure.needs_a_person for failure in memory.failures(SHOPS)]

    assert alerts == [False, False, False, False, True, True]


def test_a_committed_partition_is_forgotten_and_the_others_are_not(memory: FailureMemory) -> None:
    memory.note([NORTH, SOUTH], "both", NOON)

    memory.forget([NORTH])

    assert [failure.partition for failure in memory.failures(SHOPS)] == [SOUTH]


def test_what_the_catalogue_no_longer_has_is_left_out(memory: FailureMemory) -> None:
    memory.note([NORTH, SOUTH], "both", NOON)

    assert [f.partition.unit for f in memory.failures(catalogue("south"))] == ["south"]
