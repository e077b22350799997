"""A plan, counted: as a walk over its partitions counts it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.catalogue import Unit
from backfill_assets.core.coverage import Counts, Coverage, DayCoverage
from backfill_assets.core.plan import Plan, make_plan
from backfill_assets_tests.core.examples import a_catalogue, a_plan
from backfill_assets_tests.core.strategies import situations, subsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.core.partitions import Partition


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan with stale partitions, of which some back off."""
    situation = draw(situations())
    return make_plan(
        situation.catalogue,
        present=situation.present,
        held=situation.held,
        in_flight=situation.in_flight,
        backing_off=situation.backing_off,
        changed=draw(subsets(situation.catalogue)),
        now=situation.now,
    )


def counted(plan: Plan, belongs: Callable[[Partition], bool]) -> Counts:
    """The independent model: walk over the partitions of each state."""
    return Counts(
        expected=sum(map(belongs, plan.expected)),
        committed=sum(map(belongs, plan.committed)),
        missing=sum(map(belongs, plan.missing)),
        backing_off=sum(belongs(p) for p in plan.backing_off if p in plan.missing),
        held=sum(map(belongs, plan.held)),
        stale=sum(map(belongs, plan.stale)),
        unexpected=sum(map(belongs, plan.unexpected)),
    )


@given(plans())
def test_counts_are_those_of_a_walk(plan: Plan) -> None:
    coverage = Coverage(plan)
    assert coverage.total == counted(plan, lambda _: True)
    assert coverage.by_query() == {
        query.name: counted(plan, lambda p, query=query: p.query == query)  # type: ignore[misc]
        for query in plan.catalogue.queries
    }
    assert coverage.by_unit() == {
        unit: counted(plan, lambda p, unit=unit: p.unit == unit)  # type: ignore[misc]
        for unit in plan.catalogue.unit_names
    }


@given(plans())
def test_days_are_those_that_are_expected_newest_first(plan: Plan) -> None:
    by_day = Coverage(plan).by_day()
    assert list(by_day) == sorted({p.day for p in plan.expected}, reverse=True)
    for day, found in by_day.items():
        assert found == DayCoverage(
            expected=sum(p.day == day for p in plan.expected),
            committed=sum(p.day == day for p in plan.committed),
            held=sum(p.day == day for p in plan.held),
        )


@given(plans())
def test_before_the_oldest_hole_nothing_is_missing(plan: Plan) -> None:
    coverage = Coverage(plan)
    missing = [p.day for p in plan.missing]
    expected = sorted({p.day for p in plan.expected})
    assert coverage.oldest_hole == min(missing, default=None)
    complete = [day for day in expected if not missing or day < min(missing)]
    assert coverage.complete_until == max(complete, default=None)


def test_completeness_is_a_share_and_whole_where_nothing_is_expected() -> None:
    catalogue = a_catalogue(units=[Unit("JFK")])
    half = a_plan(catalogue, present=[f"carrier/departures/2013-08-0{n}/JFK" for n in (1, 2, 3, 4)])
    assert Coverage(half).total.completeness == 0.5
    before = a_plan(catalogue, now=datetime(2013, 7, 1, tzinfo=UTC))
    assert Coverage(before).total.completeness == 1.0


def test_the_day_that_closes_next_is_told_until_the_last_one_has_closed() -> None:
    catalogue = a_catalogue(last_day=date(2013, 8, 5))
    closes_at = datetime(2013, 8, 6, 12, tzinfo=UTC)
    assert Coverage(a_plan(catalogue)).next_closing == (date(2013, 8, 5), closes_at)
    assert Coverage(a_plan(catalogue, now=closes_at)).next_closing is None
