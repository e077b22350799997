"""Bounds split work into cycles and change nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from backfill_assets.core.catalogue import Category, Unit
from backfill_assets.core.cycles import Bounds, next_cycle
from backfill_assets.core.errors import CatalogueError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import make_plan
from backfill_assets_tests.core.examples import a_catalogue, a_plan, names
from backfill_assets_tests.core.strategies import Situation, bounds, situations, subsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.core.cycles import Cycle
    from backfill_assets.core.plan import Plan

NO_BOUNDS = Bounds()
thoroughly = settings(max_examples=max(300, settings().max_examples))
TEN_DAYS = datetime(2013, 8, 11, 13, tzinfo=UTC)  # 10 August is the latest closed day


def outline(cycles: list[Cycle]) -> list[tuple[int, int, int, str | None]]:
    """Return newest day, oldest day, partitions and bound of each cycle."""
    return [(c.last_day.day, c.first_day.day, len(c.partitions), c.cut_by) for c in cycles]


def is_narrow(cycle: Cycle) -> bool:
    """Return whether a cycle takes up a part of the units only."""
    return cycle.units != cycle.partitions.catalogue.unit_names


def cycles_of(plan: Plan, some: Bounds = NO_BOUNDS) -> list[Cycle]:
    """Return the cycles; a planner that stands still fails here, and does not run for ever."""
    most = len(plan.work)  # each cycle takes up one partition at least
    cycles = list(islice(plan.cycles(some), most + 1))
    assert len(cycles) <= most
    return cycles


@thoroughly
@given(situations(), bounds)
def test_bounded_cycles_take_up_exactly_the_work_and_each_partition_once(
    situation: Situation, some: Bounds
) -> None:
    plan = situation.plan()
    taken = [partition for cycle in cycles_of(plan, some) for partition in cycle.partitions]
    assert len(taken) == len(set(taken))
    assert set(taken) == set(plan.work)
    unbounded = [p for cycle in cycles_of(plan, NO_BOUNDS) for p in cycle.partitions]
    assert set(taken) == set(unbounded)


@thoroughly
@given(situations(), bounds)
def test_every_cycle_makes_progress_within_its_bounds(situation: Situation, some: Bounds) -> None:
    for cycle in cycles_of(situation.plan(), some):
        assert 1 <= len(cycle.partitions) <= (some.max_partitions or 10_000)
        assert 1 <= len(cycle.partitions.days()) <= (some.max_days or 10_000)


@given(situations(), bounds)
def test_a_cycle_describes_its_work_exactly(situation: Situation, some: Bounds) -> None:
    for cycle in cycles_of(situation.plan(), some):
        assert cycle.partitions.days()[0] == cycle.last_day
        assert cycle.partitions.days()[-1] == cycle.first_day
        in_work = {partition.query for partition in cycle.partitions}
        assert list(cycle.queries) == [q for q in situation.catalogue.queries if q in in_work]
        assert {partition.unit for partition in cycle.partitions} <= set(cycle.units)


@thoroughly
@given(situations(), bounds)
def test_what_is_missing_in_a_rectangle_is_its_cycles_work_and_nothing_blocked(
    situation: Situation, some: Bounds
) -> None:
    plan = situation.plan()
    missing = plan.missing
    in_flight = plan.blocked
    for cycle in cycles_of(plan, some):
        assert cycle.rectangle() & (missing | in_flight) == cycle.partitions
        in_flight = in_flight | cycle.partitions  # still running when the next one starts
        missing = missing - cycle.partitions


@given(situations(), bounds)
def test_a_rectangle_is_days_times_neighbouring_units_of_one_grid(
    situation: Situation, some: Bounds
) -> None:
    catalogue = situation.catalogue
    for cycle in cycles_of(situation.plan(), some):
        grid = next(grid for grid in catalogue.grids if cycle.queries[0] in grid.queries)
        assert set(cycle.queries) <= set(grid.queries)
        assert {query.first_day for query in cycle.queries} == {grid.first_day}
        start = catalogue.unit_names.index(cycle.units[0])
        assert cycle.units == catalogue.unit_names[start : start + len(cycle.units)]


@given(situations(), bounds)
def test_every_cycle_begins_on_the_newest_day_that_has_work_left(
    situation: Situation, some: Bounds
) -> None:
    plan = situation.plan()
    left = plan.work
    for cycle in cycles_of(plan, some):
        assert cycle.last_day == left.days()[0]
        left = left - cycle.partitions


@given(situations(), bounds)
def test_the_newest_closed_day_goes_first_and_by_itself(situation: Situation, some: Bounds) -> None:
    plan = situation.plan()
    cycles = cycles_of(plan, some)
    with_newest = [plan.latest_closed_day in cycle.partitions.days() for cycle in cycles]
    assert with_newest == sorted(with_newest, reverse=True)
    for cycle in cycles[: sum(with_newest)]:
        assert cycle.first_day == cycle.last_day == plan.latest_closed_day


@given(situations(), st.none() | st.integers(1, 8))
def test_whole_days_of_a_grid_go_in_the_order_of_the_plan(
    situation: Situation, max_days: int | None
) -> None:
    nothing = PartitionSet.empty(situation.catalogue)
    free = replace(situation, in_flight=nothing, backing_off=nothing).plan()
    cycles = cycles_of(free, Bounds(max_days=max_days))
    for grid in situation.catalogue.grids:
        taken = [p for cycle in cycles for p in cycle.partitions if p.query in grid.queries]
        assert taken == list(free.work.only(grid.queries))


@given(situations(), bounds)
def test_a_bound_is_named_only_where_it_left_work_behind(
    situation: Situation, some: Bounds
) -> None:
    cycles = cycles_of(situation.plan(), some)
    for cycle in cycles:
        assert cycle.cut_by in {None, "max_days", "max_partitions"}
        if cycle.cut_by is not None:
            assert getattr(some, cycle.cut_by) is not None
    assert not cycles or cycles[-1].cut_by is None


@given(situations(), st.data())
def test_ticks_with_changing_bounds_crashes_and_deletions_end_in_the_same_store(
    situation: Situation, data: st.DataObject
) -> None:
    """Each tick scans, launches one cycle, and sees it commit some of its work or all."""
    catalogue = situation.catalogue
    nothing = PartitionSet.empty(catalogue)

    def plan_of(present: PartitionSet, in_flight: PartitionSet) -> Plan:
        return make_plan(
            catalogue,
            present=present,
            held=situation.held,
            in_flight=in_flight,
            now=situation.now,
        )

    wanted = situation.present | plan_of(situation.present, nothing).work
    present = situation.present
    for in_flight in (situation.in_flight, situation.backing_off, nothing):
        plan = plan_of(present, in_flight)
        if not plan.work:
            continue
        cycle = next(plan.cycles(data.draw(bounds)))
        killed_at = data.draw(st.integers(0, len(cycle.partitions)))
        present = present | PartitionSet.of(catalogue, list(cycle.partitions)[:killed_at])
        present = present - (data.draw(st.just(nothing) | subsets(catalogue)) & plan.expected)
    last = data.draw(bounds)
    ticks = 0
    while work := plan_of(present, nothing).work:
        cycle = next(plan_of(present, nothing).cycles(last))
        present = present | cycle.partitions
        ticks += 1
        assert len(cycle.partitions) > 0
        assert ticks <= len(wanted), work
    reached = plan_of(present, nothing)
    assert reached.committed == plan_of(wanted, nothing).committed
    assert not reached.missing


@given(situations(), bounds)
def test_cycles_are_the_same_whenever_they_are_asked_for(
    situation: Situation, some: Bounds
) -> None:
    assert cycles_of(situation.plan(), some) == cycles_of(situation.plan(), some)


KINDS: dict[str, Callable[[Plan, Cycle], object]] = {
    "cut by days": lambda _, cycle: cycle.cut_by == "max_days",
    "cut by partitions": lambda _, cycle: cycle.cut_by == "max_partitions",
    "cut between days": lambda _, cycle: cycle.cut_by and cycle.first_day < cycle.last_day,
    "many days": lambda _, cycle: len(cycle.partitions.days()) > 2,
    "newest day": lambda plan, cycle: cycle.last_day == plan.latest_closed_day,
    "some units, blocked": lambda plan, cycle: plan.blocked and is_narrow(cycle),
    "some units, bounded": lambda plan, cycle: not plan.blocked and is_narrow(cycle),
    "many grids": lambda plan, cycle: len(plan.catalogue.grids) > 2 and len(cycle.queries) > 1,
    "around held": lambda plan, cycle: cycle.rectangle() & plan.held,
    "around committed": lambda plan, cycle: cycle.rectangle() & plan.committed,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_search_reaches_every_kind_of_cycle(kind: Callable[[Plan, Cycle], object]) -> None:
    """A property that is only ever asked about empty plans would hold, and say nothing."""

    def reached(drawn: tuple[Situation, Bounds]) -> bool:
        plan = drawn[0].plan()
        return any(kind(plan, cycle) for cycle in cycles_of(plan, drawn[1]))

    only_search = settings(max_examples=1_000, phases=[Phase.generate], database=None)
    assert find(st.tuples(situations(), bounds), reached, settings=only_search)


def test_history_goes_in_batches_of_days_after_the_newest_day() -> None:
    plan = a_plan(a_catalogue(), now=TEN_DAYS)
    assert outline(cycles_of(plan)) == [(10, 10, 6, None), (9, 1, 54, None)]
    assert outline(cycles_of(plan, Bounds(max_days=4))) == [
        (10, 10, 6, None),
        (9, 6, 24, "max_days"),
        (5, 2, 24, "max_days"),
        (1, 1, 6, None),
    ]


def test_partitions_cut_between_days_then_between_queries_then_between_units() -> None:
    plan = a_plan(a_catalogue(first_day=date(2013, 8, 9)), now=TEN_DAYS)
    assert outline(cycles_of(plan, Bounds(max_partitions=6))) == [
        (10, 10, 6, None),
        (9, 9, 6, None),
    ]
    by_query = cycles_of(plan, Bounds(max_partitions=5))
    assert outline(by_query) == [
        (10, 10, 3, "max_partitions"),
        (10, 10, 3, None),
        (9, 9, 3, "max_partitions"),
        (9, 9, 3, None),
    ]
    assert [c.queries[0].name for c in by_query[:2]] == ["carrier/departures", "hour/departures"]
    by_unit = cycles_of(plan, Bounds(max_partitions=2))
    assert names(by_unit[0].partitions) == [
        "carrier/departures/2013-08-10/EWR",
        "carrier/departures/2013-08-10/JFK",
    ]
    assert by_unit[0].units == ("EWR", "JFK")
    assert by_unit[0].cut_by == "max_partitions"


def test_a_day_that_is_committed_costs_no_bound() -> None:
    committed = [
        f"{query}/departures/2013-08-{day:02}/{unit}"
        for query in ("carrier", "hour")
        for day in (10, 9, 7, 6)
        for unit in ("EWR", "JFK", "LGA")
    ]
    plan = a_plan(a_catalogue(), present=committed, now=TEN_DAYS)
    assert outline(cycles_of(plan, Bounds(max_days=2))) == [
        (8, 5, 12, "max_days"),
        (4, 3, 12, "max_days"),
        (2, 1, 12, None),
    ]


def test_only_the_assets_that_miss_something_are_in_a_cycle() -> None:
    committed = [f"carrier/departures/2013-08-10/{unit}" for unit in ("EWR", "JFK", "LGA")]
    newest = cycles_of(a_plan(a_catalogue(), present=committed, now=TEN_DAYS))[0]
    assert [query.name for query in newest.queries] == ["hour/departures"]


def test_queries_with_another_first_day_go_in_another_cycle() -> None:
    catalogue = a_catalogue(
        categories=[
            Category("carrier"),
            Category("plane", first_day=date(2013, 8, 9)),
            Category("hour"),
        ]
    )
    cycles = cycles_of(a_plan(catalogue, now=TEN_DAYS))
    assert [(c.last_day.day, c.first_day.day, [q.category for q in c.queries]) for c in cycles] == [
        (10, 10, ["carrier", "hour"]),
        (10, 10, ["plane"]),
        (9, 1, ["carrier", "hour"]),
        (9, 9, ["plane"]),
    ]


def test_a_batch_of_days_stops_before_a_day_that_is_in_flight() -> None:
    plan = a_plan(a_catalogue(), in_flight=["hour/departures/2013-08-06/JFK"], now=TEN_DAYS)
    cycles = cycles_of(plan)
    assert outline(cycles)[:2] == [(10, 10, 6, None), (9, 7, 18, None)]
    assert [query.name for query in cycles[2].queries] == ["carrier/departures"]
    sixth = [c for c in cycles if c.last_day.day == 6 and c.queries[0].category == "hour"]
    assert [c.units for c in sixth] == [("EWR",), ("LGA",)]


def test_a_range_of_units_stops_before_a_unit_that_is_in_flight() -> None:
    catalogue = a_catalogue(
        units=[Unit(name) for name in "ABCDE"],
        categories=[Category("carrier")],
        first_day=date(2013, 8, 10),
    )
    plan = a_plan(
        catalogue,
        present=["carrier/departures/2013-08-10/A", "carrier/departures/2013-08-10/C"],
        in_flight=["carrier/departures/2013-08-10/D"],
        now=TEN_DAYS,
    )
    cycles = cycles_of(plan)
    assert [c.units for c in cycles] == [("B", "C"), ("E",)]
    assert [names(c.partitions) for c in cycles] == [
        ["carrier/departures/2013-08-10/B"],
        ["carrier/departures/2013-08-10/E"],
    ]


def test_an_endless_failure_starves_nothing_else() -> None:
    failing = [f"hour/departures/2013-08-{day:02}/JFK" for day in range(1, 11)]
    plan = a_plan(a_catalogue(), backing_off=failing, now=TEN_DAYS)
    taken = [p for cycle in cycles_of(plan, Bounds(max_days=3)) for p in cycle.partitions]
    assert len(taken) == 50
    assert set(names(taken)) == set(names(plan.missing)) - set(failing)


def test_a_deleted_file_of_the_newest_day_is_taken_up_before_history() -> None:
    catalogue = a_catalogue()
    everything = names(a_plan(catalogue, now=TEN_DAYS).missing)
    deleted = {"hour/departures/2013-08-10/JFK", "carrier/departures/2013-08-02/LGA"}
    present = [name for name in everything if name not in deleted]
    cycles = cycles_of(a_plan(catalogue, present=present, now=TEN_DAYS))
    assert [names(c.partitions) for c in cycles] == [
        ["hour/departures/2013-08-10/JFK"],
        ["carrier/departures/2013-08-02/LGA"],
    ]


def test_the_last_day_of_a_catalogue_that_has_ended_also_goes_by_itself() -> None:
    plan = a_plan(a_catalogue(last_day=date(2013, 8, 4)), now=TEN_DAYS)
    assert outline(cycles_of(plan)) == [(4, 4, 6, None), (3, 1, 18, None)]


def test_nothing_missing_is_no_cycle() -> None:
    plan = a_plan(a_catalogue(first_day=date(2014, 1, 1)))
    assert cycles_of(plan) == []


@pytest.mark.parametrize("name", ["max_days", "max_partitions", "max_query_seconds", "max_files"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_bound_of_zero_or_less_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(CatalogueError) as refusal:
        Bounds(**{name: value})
    assert str(refusal.value) == (
        f"{name} is {value}: a cycle must be able to do something; give 1 or more"
    )


def test_a_bound_may_be_left_out_and_a_second_may_be_a_part_of_one() -> None:
    assert Bounds(max_query_seconds=0.5).max_days is None
    assert Bounds() == Bounds(max_days=None, max_partitions=None)


def test_one_cycle_can_be_asked_for_without_a_plan() -> None:
    plan = a_plan(a_catalogue(), now=TEN_DAYS)
    nothing = PartitionSet.empty(plan.catalogue)
    cycle = next_cycle(
        plan.work, nothing, date(2013, 8, 10) + timedelta(days=1), Bounds(max_days=2)
    )
    assert outline([cycle]) == [(10, 9, 12, "max_days")]


@st.composite
def restatings(draw: st.DrawFn) -> Plan:
    """Draw a plan of which some is stale; some of that is to be made again, and some is not."""
    situation = draw(situations())
    catalogue = replace(situation.catalogue, restates_changed=draw(st.booleans()))
    sets = {
        name: replace(getattr(situation, name), catalogue=catalogue)
        for name in ("present", "held", "in_flight", "backing_off")
    }
    return make_plan(
        catalogue,
        **sets,
        now=situation.now,
        wished=draw(subsets(catalogue)),
        changed=draw(subsets(catalogue)),
    )


@thoroughly
@given(restatings(), bounds)
def test_what_is_made_again_is_each_stale_partition_once_and_nothing_that_waits(
    plan: Plan, some: Bounds
) -> None:
    work = plan.restating - plan.in_flight - plan.backing_off
    cycles = list(islice(plan.restating_cycles(some), len(work) + 1))
    taken = [partition for cycle in cycles for partition in cycle.partitions]
    assert len(taken) == len(work)
    assert set(taken) == set(work)
    left = plan.missing | plan.stale
    for cycle in cycles:
        assert cycle.last_day == (work & left).days()[0]
        # A run that makes stale partitions again would make these too.
        assert cycle.rectangle() & left == cycle.partitions
        left = left - cycle.partitions


@given(restatings())
def test_what_changed_is_made_again_by_itself_only_where_the_catalogue_says_so(plan: Plan) -> None:
    assert plan.restating - plan.stale == PartitionSet.empty(plan.catalogue)
    assert plan.stale - plan.committed == PartitionSet.empty(plan.catalogue)
    if plan.catalogue.restates_changed:
        assert plan.restating == plan.stale
