"""A stream computes newest first, in groups, within its bounds, and a bad day harms no other."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from backfill_assets.core.cycles import Bounds
from backfill_assets.core.errors import (
    PartitionsRefusedError,
    SourceError,
    SourceNotReadyError,
)
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.resources import partition_stream
from backfill_assets.resources.partition_stream import PartitionStream
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_2,
    DAY_3,
    DAY_4,
    DAY_5,
    DAY_6,
    NOW,
    REVENUE,
    SHOPS,
    SOLD,
    Shops,
    a_catalogue,
    a_project,
    rectangle,
)

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.resources.partition_stream import Group

UNITS = ["Paris", "Lyon", "Nice"]
LONG = a_catalogue(last_day=None)  # a year and more of days, for streams of many groups
LAST_DAY = date(2024, 6, 8)  # 100 days


@pytest.fixture(autouse=True)
def _groups_of_thirty_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a hundred days be several groups."""
    monkeypatch.setattr(partition_stream, "MOST_DAYS", 30)


def a_stream(
    root: Path,
    source: Shops,
    *,
    first: date = DAY_1,
    last: date = DAY_5,
    catalogue: Catalogue = SHOPS,
    now: datetime = NOW,
    bounds: Bounds | None = None,
) -> PartitionStream:
    """Return the stream of the queries by article over some days, as a run would have it."""
    project = a_project(root, catalogue=catalogue, source=source, now=now)
    queries = [catalogue.query("article/sold"), catalogue.query("article/revenue")]
    asked = rectangle(*queries, first=first, last=last, units=UNITS, catalogue=catalogue)
    return PartitionStream(
        assignment=project.assignment(asked, replace=False),
        queries=queries,
        source=source,
        bounds=bounds or Bounds(),
    )


def a_long_stream(root: Path, source: Shops, bounds: Bounds | None = None) -> PartitionStream:
    return a_stream(
        root,
        source,
        last=LAST_DAY,
        catalogue=LONG,
        now=datetime(2024, 6, 10, tzinfo=UTC),
        bounds=bounds,
    )


def commit(stream: PartitionStream) -> list[Group]:
    """Take each group as the IO manager does, and return them all."""
    groups = []
    for group in stream.groups():
        groups.append(group)
        catalogue = stream.assignment.plan.catalogue
        stream.note_committed(PartitionSet.of(catalogue, [partition for partition, _ in group]))
    return groups


def test_a_group_is_in_plan_order_and_holds_every_partition_asked_for(root: Path) -> None:
    stream = a_stream(root, Shops(), first=DAY_1, last=DAY_2)
    (group,) = commit(stream)
    assert [str(partition).removeprefix("shops/article/") for partition, _ in group] == [
        "sold/2024-03-02/Paris",
        "sold/2024-03-02/Lyon",
        "sold/2024-03-02/Nice",
        "revenue/2024-03-02/Paris",
        "revenue/2024-03-02/Lyon",
        "revenue/2024-03-02/Nice",
        "sold/2024-03-01/Paris",
        "sold/2024-03-01/Lyon",
        "revenue/2024-03-01/Paris",
        "revenue/2024-03-01/Lyon",
    ]
    assert group[0][1].to_pylist() == [
        {"date": DAY_2, "unit": "Paris", "article": "A0", "value": 205},
        {"date": DAY_2, "unit": "Paris", "article": "A1", "value": 206},
    ]
    assert not stream.left


def test_one_question_serves_all_units_and_value_types_of_thirty_days(root: Path) -> None:
    source = Shops()
    groups = commit(a_long_stream(root, source))
    asked = [days for _, days in source.questions]
    assert [len(days) for days in asked] == [30, 30, 30, 10]
    assert list(itertools.chain(*asked)) == [LAST_DAY - timedelta(days=n) for n in range(100)]
    assert [len(group) for group in groups] == [180, 180, 180, 58]


@pytest.mark.parametrize(
    ("a_day", "days"),
    [(1, 120), (8, 120), (10, 100), (12, 83), (30, 33), (100, 30), (1_000, 30)],
)
def test_a_group_is_about_a_thousand_files_within_its_bounds_of_days(
    monkeypatch: pytest.MonkeyPatch, a_day: int, days: int
) -> None:
    monkeypatch.setattr(partition_stream, "MOST_DAYS", 120)
    assert partition_stream.days_of_a_group(a_day * 365, 365) == days


def test_nothing_has_a_group_too() -> None:
    assert partition_stream.days_of_a_group(0, 0) == partition_stream.LEAST_DAYS


def test_the_source_is_asked_only_for_what_is_missing(root: Path) -> None:
    source = Shops()
    project = a_project(root, source=source)
    with project.store.attempt("earlier") as attempt:
        for partition, table in next(iter(a_stream(root, Shops()).groups())):
            if partition.day != DAY_3 or partition.query == SOLD:
                attempt.stage(partition, table)
        attempt.publish()
    (group,) = commit(a_stream(root, source))
    assert source.questions == [("article", (DAY_3,))]
    assert {(partition.query, partition.day) for partition, _ in group} == {(REVENUE, DAY_3)}


def test_the_next_group_is_computed_only_when_it_is_asked_for(root: Path) -> None:
    source = Shops()
    groups = a_long_stream(root, source).groups()
    assert source.questions == []
    next(groups)
    assert len(source.questions) == 1


def test_a_day_that_fails_is_named_in_the_end_and_the_others_are_given(root: Path) -> None:
    source = Shops(failing={DAY_3})
    stream = a_stream(root, source)
    days = [next(partition.day for partition, _ in group) for group in commit(stream)]
    assert days == [DAY_5, DAY_4, DAY_2, DAY_1]
    assert stream.left.days() == [DAY_3]
    with pytest.raises(
        SourceError,
        match=r"1 days could not be .*\(2024-03-03\), and the others are committed\. "
        r"The first failure: the till of 2024-03-03 is broken",
    ):
        stream.finish()


def test_only_the_batch_with_a_bad_day_is_asked_for_day_by_day(root: Path) -> None:
    source = Shops(failing={LAST_DAY - timedelta(days=40)})
    groups = commit(a_long_stream(root, source))
    assert [len(days) for _, days in source.questions] == [30, 30, *[1] * 30, 30, 10]
    assert len(groups) == 1 + 29 + 2


def test_a_day_that_the_source_is_not_ready_for_waits_and_is_no_failure(root: Path) -> None:
    stream = a_stream(root, Shops(not_ready={DAY_4, DAY_5}))
    stream.asked_by_person = False
    commit(stream)
    assert stream.waiting.days() == [DAY_5, DAY_4]
    assert stream.failures == {}
    assert stream.left.masks == stream.waiting.masks
    stream.finish()


def test_a_person_is_told_that_the_source_is_not_ready(root: Path) -> None:
    stream = a_stream(root, Shops(not_ready={DAY_4, DAY_5}))
    commit(stream)
    with pytest.raises(SourceNotReadyError, match="2024-03-05, 2024-03-04"):
        stream.finish()


def test_the_sensor_passes_over_what_is_held(root: Path) -> None:
    stream = a_stream(root, Shops(), first=DAY_5, last=DAY_6)
    stream.asked_by_person = False
    commit(stream)
    stream.finish()
    assert stream.committed.days() == [DAY_5]


def test_open_partitions_are_refused_in_the_end_with_their_closing_instant(root: Path) -> None:
    stream = a_stream(root, Shops(), first=DAY_5, last=DAY_6)
    commit(stream)
    assert stream.committed.days() == [DAY_5]
    with pytest.raises(PartitionsRefusedError, match=r"closes at 2024-03-07T01:00:00\+01:00"):
        stream.finish()


def test_a_bound_on_files_ends_the_stream_after_the_group_in_hand(root: Path) -> None:
    source = Shops()
    stream = a_long_stream(root, source, Bounds(max_files=181))
    assert [len(group) for group in commit(stream)] == [180, 180]
    assert stream.stopped_by == "max_files"
    assert len(stream.left) == 180 + 58
    assert len(source.questions) == 2
    stream.finish()


class Stopwatch:
    """A source's time: twenty seconds for each question."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def advance(self) -> None:
        self._seconds += 20

    def seconds(self) -> float:
        return self._seconds


def test_a_bound_on_query_seconds_ends_the_stream_after_the_group_in_hand(root: Path) -> None:
    clock = Stopwatch()
    stream = a_long_stream(root, Shops(on_read=clock.advance), Bounds(max_query_seconds=30))
    stream.timer = clock.seconds
    assert len(commit(stream)) == 2
    assert stream.stopped_by == "max_query_seconds"
    assert len(stream.left) == 180 + 58


def test_failing_questions_take_time_too_and_are_bounded(root: Path) -> None:
    clock = Stopwatch()
    failing = {LAST_DAY - timedelta(days=n) for n in range(100)}
    source = Shops(on_read=clock.advance, failing=failing)
    stream = a_long_stream(root, source, Bounds(max_query_seconds=50))
    stream.timer = clock.seconds
    assert commit(stream) == []
    assert stream.stopped_by == "max_query_seconds"
    assert len(source.questions) == 3  # one for thirty days, and one each for two of them


@pytest.mark.parametrize("limit", [598, 597])
def test_a_stream_that_is_complete_was_stopped_by_nothing(root: Path, limit: int) -> None:
    stream = a_long_stream(root, Shops(), Bounds(max_files=limit))
    commit(stream)
    assert not stream.left
    assert stream.stopped_by is None


def test_memory_does_not_grow_with_the_number_of_groups(root: Path) -> None:
    held: list[int] = []
    source = Shops(on_read=lambda: held.append(pa.total_allocated_bytes()))
    stream = a_long_stream(root, source)
    for group in stream.groups():
        stream.note_committed(PartitionSet.of(LONG, [partition for partition, _ in group]))
    before, second, third, fourth = held
    one_group = second - before
    assert one_group > 0
    # The group in hand is let go when the next one is there, never later.
    assert max(third, fourth) - before < 2 * one_group
