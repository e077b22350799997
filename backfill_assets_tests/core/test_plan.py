"""The state of every partition, and why: the first of five that applies."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.errors import CatalogueError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import State, make_plan
from backfill_assets_tests.core.examples import NOW, a_catalogue, a_plan, names
from backfill_assets_tests.core.strategies import Situation, all_partitions, situations

if TYPE_CHECKING:
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.plan import Plan


def states(plan: Plan, *texts: str) -> list[tuple[str, str]]:
    """Return state and reason of each partition that is named."""
    explained = [plan.explain(plan.catalogue.parse(text)) for text in texts]
    return [(state.value, reason) for state, reason in explained]


def modelled_state(situation: Situation, partition: Partition) -> State:
    """The independent model: the table of states, read from its first line to its last."""
    catalogue, day = situation.catalogue, partition.day
    unit = next(unit for unit in catalogue.units if unit.name == partition.unit)
    begins = (catalogue.first_day, partition.query.first_day, unit.first_day)
    ends = (catalogue.last_day, unit.last_day)
    if (
        any(first is not None and day < first for first in begins)
        or any(last is not None and day > last for last in ends)
        or not catalogue.closing.is_civil_day(day)
    ):
        return State.NOT_EXPECTED
    if situation.now < catalogue.closing.closes_at(day):
        return State.OPEN
    if partition in situation.held:
        return State.HELD
    return State.COMMITTED if partition in situation.present else State.MISSING


@given(situations())
def test_every_partition_has_the_first_state_that_applies(situation: Situation) -> None:
    plan = situation.plan()
    for partition in all_partitions(situation.catalogue):
        state = modelled_state(situation, partition)
        assert plan.state(partition) is state
        assert (partition in plan.expected) == (state not in {State.NOT_EXPECTED, State.OPEN})
        assert (partition in plan.held) == (state is State.HELD)
        assert (partition in plan.committed) == (state is State.COMMITTED)
        assert (partition in plan.missing) == (state is State.MISSING)


@given(situations())
def test_expected_is_held_committed_or_missing_and_never_two_of_them(situation: Situation) -> None:
    plan = situation.plan()
    assert plan.held | plan.committed | plan.missing == plan.expected
    assert len(plan.held) + len(plan.committed) + len(plan.missing) == len(plan.expected)


@given(situations())
def test_work_is_missing_and_neither_in_flight_nor_backing_off(situation: Situation) -> None:
    plan = situation.plan()
    missing, in_flight = set(plan.missing), set(situation.in_flight)
    backing_off = set(situation.backing_off)
    assert set(plan.work) == missing - in_flight - backing_off
    assert set(plan.in_flight) == missing & in_flight
    assert set(plan.backing_off) == missing & backing_off
    assert set(plan.blocked) == missing & (in_flight | backing_off)
    never = {p for p in situation.present if situation.catalogue.why_not_expected(p)}
    assert set(plan.unexpected) == never


@given(situations())
def test_committing_what_is_missing_leaves_nothing_missing(situation: Situation) -> None:
    plan = situation.plan()
    done = make_plan(
        situation.catalogue,
        present=situation.present | plan.missing,
        held=situation.held,
        in_flight=situation.in_flight,
        now=situation.now,
    )
    assert not done.missing
    assert done.expected == plan.expected
    assert done.unexpected == plan.unexpected


@given(situations(), st.timedeltas(timedelta(0), timedelta(days=4)))
def test_time_only_adds_to_what_is_expected(situation: Situation, later: timedelta) -> None:
    before = situation.plan()
    after = replace(situation, now=situation.now + later).plan()
    assert not before.expected - after.expected


def test_the_five_states_say_why() -> None:
    plan = a_plan(
        a_catalogue(),
        present=["carrier/departures/2013-08-03/JFK"],
        held=["carrier/departures/2013-08-03/LGA"],
        in_flight=["carrier/departures/2013-08-02/EWR"],
        backing_off=["carrier/departures/2013-08-02/EWR", "carrier/departures/2013-08-02/JFK"],
    )
    assert states(
        plan,
        "carrier/departures/2013-07-31/JFK",
        "carrier/departures/2013-08-05/JFK",
        "carrier/departures/2013-08-03/LGA",
        "carrier/departures/2013-08-03/JFK",
        "carrier/departures/2013-08-03/EWR",
        "carrier/departures/2013-08-02/EWR",
        "carrier/departures/2013-08-02/JFK",
    ) == [
        ("not expected", "carrier/departures begins on 2013-08-01"),
        ("open", "its day closes at 2013-08-06T08:00:00-04:00"),
        ("held", "a hold stands for it"),
        ("committed", "its file stands in the store"),
        ("missing", "no committed file; the next cycles take it up"),
        ("missing", "a run that takes it up is in flight"),
        ("missing", "it failed lately, or its run was cancelled, and it backs off"),
    ]


def test_a_hold_wins_over_a_file() -> None:
    both = ["carrier/departures/2013-08-03/JFK"]
    plan = a_plan(a_catalogue(), present=both, held=both)
    assert names(plan.held) == both
    assert names(plan.committed) == []
    assert names(plan.unexpected) == []
    assert plan.state(plan.catalogue.parse(both[0])) is State.HELD


def test_a_hold_on_what_is_not_expected_or_open_changes_nothing() -> None:
    plan = a_plan(
        a_catalogue(),
        held=["carrier/departures/2013-07-31/JFK", "carrier/departures/2013-08-05/JFK"],
    )
    assert names(plan.held) == []
    assert [state for state, _ in states(plan, "carrier/departures/2013-08-05/JFK")] == ["open"]


def test_a_file_of_an_open_day_is_neither_committed_nor_unexpected() -> None:
    """It was committed before the lateness was raised: it will be expected again."""
    early = ["carrier/departures/2013-08-05/JFK"]
    plan = a_plan(a_catalogue(), present=early)
    assert names(plan.unexpected) == []
    assert names(plan.committed) == []
    assert plan.state(plan.catalogue.parse(early[0])) is State.OPEN


def test_a_file_of_a_far_day_costs_no_walk_through_all_the_days_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[date] = []
    open_units = Catalogue.open_units

    def counted(catalogue: Catalogue, day: date) -> int:
        looked_at.append(day)
        return open_units(catalogue, day)

    monkeypatch.setattr(Catalogue, "open_units", counted)
    plan = a_plan(a_catalogue(), present=["carrier/departures/9998-12-31/JFK"])
    assert names(plan.unexpected) == []
    assert sorted(looked_at) == [*(date(2013, 8, day) for day in (1, 2, 3, 4)), date(9998, 12, 31)]


def test_a_file_of_an_open_day_is_judged_by_its_own_day_and_no_other() -> None:
    """A file of a later day, also open, does not push it out of what is kept."""
    early = ["carrier/departures/2013-08-05/JFK", "carrier/departures/2013-09-05/JFK"]
    closed = "carrier/departures/2013-08-05/EWR"
    catalogue = a_catalogue(
        retention_days=2,
        units=[Unit("EWR", last_day=date(2013, 8, 4)), Unit("JFK"), Unit("LGA")],
    )
    assert names(a_plan(catalogue, present=[*early, closed]).unexpected) == [closed]


def test_a_day_is_missing_from_the_very_instant_at_which_it_closes() -> None:
    closes_at = datetime(2013, 8, 6, 12, tzinfo=UTC)
    text = "carrier/departures/2013-08-05/JFK"
    before = a_plan(a_catalogue(), now=closes_at - timedelta(microseconds=1))
    at = a_plan(a_catalogue(), now=closes_at)
    partition = at.catalogue.parse(text)
    assert (before.state(partition), at.state(partition)) == (State.OPEN, State.MISSING)
    assert (len(before.missing), len(at.missing)) == (24, 30)
    assert (before.latest_closed_day, at.latest_closed_day) == (date(2013, 8, 4), date(2013, 8, 5))


def test_units_open_and_close() -> None:
    catalogue = a_catalogue(
        units=[
            Unit("EWR", last_day=date(2013, 8, 2)),
            Unit("JFK", first_day=date(2013, 8, 3)),
            Unit("LGA", date(2013, 8, 2), date(2013, 8, 3)),
        ],
        categories=[Category("carrier")],
    )
    assert names(a_plan(catalogue).missing) == [
        "carrier/departures/2013-08-04/JFK",
        "carrier/departures/2013-08-03/JFK",
        "carrier/departures/2013-08-03/LGA",
        "carrier/departures/2013-08-02/EWR",
        "carrier/departures/2013-08-02/LGA",
        "carrier/departures/2013-08-01/EWR",
    ]


def test_a_day_without_an_open_unit_expects_nothing() -> None:
    catalogue = a_catalogue(units=[Unit("JFK", first_day=date(2013, 8, 4))])
    plan = a_plan(catalogue)
    assert plan.expected.days() == [date(2013, 8, 4)]


def test_a_query_is_expected_from_its_first_day_on() -> None:
    catalogue = a_catalogue(
        units=[Unit("JFK")],
        categories=[Category("carrier"), Category("hour", first_day=date(2013, 8, 3))],
        value_types=[ValueType("departures"), ValueType("delays", first_day=date(2013, 8, 4))],
    )
    assert names(a_plan(catalogue).missing) == [
        "carrier/departures/2013-08-04/JFK",
        "carrier/delays/2013-08-04/JFK",
        "hour/departures/2013-08-04/JFK",
        "hour/delays/2013-08-04/JFK",
        "carrier/departures/2013-08-03/JFK",
        "hour/departures/2013-08-03/JFK",
        "carrier/departures/2013-08-02/JFK",
        "carrier/departures/2013-08-01/JFK",
    ]


def test_nothing_is_expected_after_the_last_day_nor_before_the_first_has_closed() -> None:
    ended = a_plan(a_catalogue(last_day=date(2013, 8, 2)), now=NOW + timedelta(days=99))
    assert ended.expected.days() == [date(2013, 8, 2), date(2013, 8, 1)]
    assert ended.latest_closed_day == date(2013, 8, 2)
    future = a_plan(a_catalogue(first_day=date(2013, 9, 1)))
    assert not future.expected
    assert not future.missing


def test_a_day_that_never_was_is_not_expected() -> None:
    catalogue = a_catalogue(
        closing=ClosingPolicy(zone=ZoneInfo("Pacific/Apia")), first_day=date(2011, 12, 28)
    )
    plan = a_plan(catalogue, now=datetime(2011, 12, 31, 10, tzinfo=UTC))
    assert plan.expected.days() == [date(2011, 12, 31), date(2011, 12, 29), date(2011, 12, 28)]
    assert states(plan, "carrier/departures/2011-12-30/JFK") == [
        ("not expected", "2011-12-30 never was in Pacific/Apia")
    ]


def test_files_that_are_no_longer_expected_are_reported_and_stop_nothing() -> None:
    old = a_catalogue(last_day=date(2013, 8, 1), units=[Unit("JFK", last_day=date(2013, 8, 1))])
    plan = a_plan(
        old, present=["carrier/departures/2013-08-01/JFK", "carrier/departures/2013-08-02/JFK"]
    )
    assert names(plan.unexpected) == ["carrier/departures/2013-08-02/JFK"]
    assert names(plan.committed) == ["carrier/departures/2013-08-01/JFK"]
    assert names(plan.missing) == ["hour/departures/2013-08-01/JFK"]


@pytest.mark.parametrize(
    ("change", "added"),
    [
        (
            {"units": [Unit("BOS"), Unit("EWR"), Unit("JFK"), Unit("LGA")]},
            ["carrier/departures/2013-08-01/BOS", "hour/departures/2013-08-01/BOS"],
        ),
        (
            {"categories": [Category("carrier"), Category("plane"), Category("hour")]},
            [
                "plane/departures/2013-08-01/EWR",
                "plane/departures/2013-08-01/JFK",
                "plane/departures/2013-08-01/LGA",
            ],
        ),
        (
            {"value_types": [ValueType("departures"), ValueType("delays", first_day=date.max)]},
            [],
        ),
        ({"last_day": None}, []),
    ],
)
def test_adding_to_a_catalogue_makes_only_the_difference_missing(
    change: dict[str, Any], added: list[str]
) -> None:
    now = datetime(2013, 8, 2, 13, tzinfo=UTC)
    complete = names(a_plan(a_catalogue(), now=now).missing)
    assert len(complete) == 6
    assert names(a_plan(a_catalogue(**change), present=complete, now=now).missing) == added


def test_a_new_version_changes_its_own_query_and_no_other() -> None:
    before = a_catalogue()
    after = a_catalogue(versions={"hour/departures": 2})
    changed = [
        query.name for query, old in zip(after.queries, before.queries, strict=True) if query != old
    ]
    assert changed == ["hour/departures"]
    # A store shows the files of the version that the catalogue asks for, and no others.
    stands = [name for name in names(a_plan(before).missing) if name.startswith("carrier/")]
    missing = a_plan(after, present=stands).missing
    assert {partition.query for partition in missing} == {after.query("hour/departures")}
    assert len(missing) == 12


def test_removing_a_unit_and_adding_it_back_finds_its_files_again() -> None:
    catalogue = a_catalogue(first_day=date(2013, 8, 4))
    complete = names(a_plan(catalogue).missing)
    without = a_catalogue(first_day=date(2013, 8, 4), units=[Unit("EWR"), Unit("LGA")])
    kept = [name for name in complete if not name.endswith("JFK")]
    assert names(a_plan(without, present=kept).missing) == []
    assert names(a_plan(catalogue, present=complete).missing) == []


def test_a_plan_without_a_time_zone_is_refused() -> None:
    catalogue = a_catalogue()
    nothing = PartitionSet.empty(catalogue)
    with pytest.raises(CatalogueError, match="without a time zone"):
        make_plan(
            catalogue,
            present=nothing,
            held=nothing,
            in_flight=nothing,
            now=datetime(2013, 8, 5, 9),  # noqa: DTZ001 - the point
        )


def test_the_printed_plan_depends_on_no_hash_seed() -> None:
    root = Path(__file__).parents[2]
    printed = {
        subprocess.run(
            [sys.executable, "-m", "backfill_assets_tests.core.printed_plan"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "2013")
    }
    assert len(printed) == 1
    lines = printed.pop().splitlines()
    assert lines[0].startswith("carrier/departures/2013-08-06/")
    assert "cycle 1: 2013-08-04 … 2013-08-04 max_partitions" in lines
