"""What becomes of each partition that a run was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.assignment import assign
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import Plan, State, make_plan
from backfill_assets_tests.core.examples import a_catalogue, a_plan, a_set, names
from backfill_assets_tests.core.strategies import situations, subsets

CARRIER = "carrier/departures"


@dataclass(frozen=True)
class Asked:
    """A plan with stale partitions, and what a run was asked for under it."""

    plan: Plan
    requested: PartitionSet


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    situation = draw(situations())
    plan = make_plan(
        situation.catalogue,
        present=situation.present,
        held=situation.held,
        in_flight=situation.in_flight,
        wished=draw(subsets(situation.catalogue)),
        now=situation.now,
    )
    return Asked(plan, draw(subsets(situation.catalogue)))


@given(case=asked(), replaces=st.booleans(), stale_only=st.booleans())
def test_each_requested_partition_goes_where_its_state_says(
    *, case: Asked, replaces: bool, stale_only: bool
) -> None:
    plan = case.plan
    found = assign(plan, case.requested, replace=replaces, stale_only=stale_only)
    parts = (found.compute, found.skip, found.refuse, found.not_expected)
    assert sum(map(len, parts)) == len(case.requested)
    for partition in case.requested:
        state = plan.state(partition)
        again = replaces and (not stale_only or partition in plan.restating)
        is_computed = state is State.MISSING or (state is State.COMMITTED and again)
        assert (partition in found.compute) == is_computed
        assert (partition in found.skip) == (state is State.COMMITTED and not again)
        assert (partition in found.refuse) == (state in {State.OPEN, State.HELD})
        assert (partition in found.not_expected) == (state is State.NOT_EXPECTED)


def test_a_refusal_names_open_and_held_partitions_with_their_reasons() -> None:
    held, still_open = f"{CARRIER}/2013-08-01/JFK", f"{CARRIER}/2013-08-05/EWR"
    plan = a_plan(a_catalogue(), held=[held])
    requested = a_set(plan.catalogue, [held, still_open, f"{CARRIER}/2013-08-02/JFK"])
    found = assign(plan, requested, replace=False)
    assert names(found.compute) == [f"{CARRIER}/2013-08-02/JFK"]
    assert found.refusal() == (
        "2 partitions were refused, and the others are committed: "
        "flights/carrier/departures/2013-08-05/EWR is open: its day closes at "
        "2013-08-06T08:00:00-04:00; "
        "flights/carrier/departures/2013-08-01/JFK is held: a hold stands for it"
    )


@pytest.mark.parametrize(
    ("refused", "end"), [(5, "-04:00"), (6, "; and 1 more"), (12, "; and 7 more")]
)
def test_a_refusal_names_five_and_counts_the_rest(refused: int, end: str) -> None:
    catalogue = a_catalogue()
    open_days = catalogue.days(date(2013, 8, 5), date(2013, 8, 6))
    everything = PartitionSet.rectangle(catalogue, catalogue.queries, open_days, 0b111)
    some = PartitionSet.of(catalogue, list(everything)[:refused])
    refusal = assign(a_plan(catalogue), some, replace=True).refusal()
    assert refusal is not None
    assert refusal.startswith(f"{refused} partitions were refused")
    assert refusal.count(" is open: ") == 5
    assert refusal.endswith(end)


def test_nothing_refused_is_no_refusal() -> None:
    plan = a_plan(a_catalogue())
    assert assign(plan, plan.missing, replace=False).refusal() is None
