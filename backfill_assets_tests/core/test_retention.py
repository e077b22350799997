"""Retention: the newest closed days are expected, and older ones no more and never again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.catalogue import Unit
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.cycles import Bounds
from backfill_assets.core.errors import CatalogueError
from backfill_assets.core.plan import State, expected_partitions, make_plan
from backfill_assets_tests.core.examples import a_catalogue, a_plan, names
from backfill_assets_tests.core.strategies import SPAN, Situation, all_partitions, situations

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue

retentions = st.integers(1, SPAN)


def with_retention(situation: Situation, retention_days: int) -> Situation:
    """Return the same situation of a catalogue that keeps only so many days."""
    catalogue = replace(situation.catalogue, retention_days=retention_days)
    sets = {
        name: replace(getattr(situation, name), catalogue=catalogue)
        for name in ("present", "held", "in_flight", "backing_off")
    }
    return replace(situation, catalogue=catalogue, **sets)


@given(situations(), retentions)
def test_the_newest_closed_days_are_expected_and_they_alone(
    situation: Situation, retention_days: int
) -> None:
    everything = situation.plan()
    plan = with_retention(situation, retention_days).plan()
    closing, day = situation.catalogue.closing, everything.latest_closed_day
    retained: list[date] = []
    while day >= situation.catalogue.first_day and len(retained) < retention_days:
        if closing.is_civil_day(day):
            retained.append(day)
        day -= timedelta(days=1)
    assert {str(p) for p in plan.expected} == {
        str(p) for p in everything.expected if p.day in retained
    }


@given(situations(), retentions)
def test_a_day_that_is_too_old_says_so_and_every_other_state_is_as_without_retention(
    situation: Situation, retention_days: int
) -> None:
    everything = situation.plan()
    kept = with_retention(situation, retention_days)
    plan = kept.plan()
    for partition in all_partitions(kept.catalogue):
        before, why_before = everything.explain(partition)
        state, why = plan.explain(partition)
        if before in {State.NOT_EXPECTED, State.OPEN} or partition in plan.expected:
            assert (state, why) == (before, why_before)
        else:
            assert state is State.NOT_EXPECTED
            assert f"keeps its newest {retention_days} closed days" in why


@given(situations(), retentions)
def test_what_is_too_old_is_never_work_and_what_stands_of_it_is_unexpected(
    situation: Situation, retention_days: int
) -> None:
    kept = with_retention(situation, retention_days)
    plan = kept.plan()
    oldest = kept.catalogue.oldest_retained_day(plan.latest_closed_day)
    too_old = {p for p in kept.present if p.day < oldest}
    assert too_old <= set(plan.unexpected)
    for cycle in plan.cycles(Bounds(max_days=1)):
        assert cycle.first_day >= oldest
    done = make_plan(
        kept.catalogue,
        present=kept.present | plan.missing,
        held=kept.held,
        in_flight=kept.in_flight,
        now=kept.now,
    )
    assert not done.missing
    assert done.unexpected == plan.unexpected


@given(situations(), retentions, st.timedeltas(timedelta(0), timedelta(days=4)))
def test_time_moves_the_oldest_day_on_and_never_back(
    situation: Situation, retention_days: int, later: timedelta
) -> None:
    kept = with_retention(situation, retention_days)
    before, after = kept.plan(), replace(kept, now=kept.now + later).plan()
    oldest_day = kept.catalogue.oldest_retained_day
    assert oldest_day(after.latest_closed_day) >= oldest_day(before.latest_closed_day)
    assert all(
        p.day < oldest_day(after.latest_closed_day) for p in before.expected - after.expected
    )


@given(situations(), retentions, retentions)
def test_keeping_more_days_only_adds_to_what_is_expected(
    situation: Situation, one: int, other: int
) -> None:
    few, many = sorted((one, other))
    expected = {str(p) for p in with_retention(situation, few).plan().expected}
    assert expected <= {str(p) for p in with_retention(situation, many).plan().expected}
    assert expected <= {str(p) for p in situation.plan().expected}


def days_expected(catalogue: Catalogue, latest: date) -> list[int]:
    return [day.day for day in expected_partitions(catalogue, latest).days()]


def test_three_days_are_kept_and_a_new_one_pushes_the_oldest_out() -> None:
    catalogue = a_catalogue(retention_days=3)
    assert days_expected(catalogue, date(2013, 7, 31)) == []
    assert days_expected(catalogue, date(2013, 8, 2)) == [2, 1]
    assert days_expected(catalogue, date(2013, 8, 3)) == [3, 2, 1]
    assert days_expected(catalogue, date(2013, 8, 4)) == [4, 3, 2]
    assert days_expected(catalogue, date(2013, 8, 9)) == [9, 8, 7]


def test_after_the_last_day_of_all_the_newest_days_stay() -> None:
    catalogue = a_catalogue(retention_days=2, last_day=date(2013, 8, 5))
    plan = a_plan(catalogue, now=datetime(2031, 1, 1, tzinfo=UTC))
    assert [day.day for day in plan.expected.days()] == [5, 4]


def test_a_day_that_never_was_is_not_one_of_the_days_that_are_kept() -> None:
    apia = a_catalogue(
        closing=ClosingPolicy(zone=ZoneInfo("Pacific/Apia")),
        first_day=date(2011, 12, 20),
        retention_days=3,
    )
    assert days_expected(apia, date(2012, 1, 1)) == [1, 31, 29]


def test_a_day_of_which_no_unit_is_open_counts_as_one_of_the_days_that_are_kept() -> None:
    catalogue = a_catalogue(units=[Unit("JFK", last_day=date(2013, 8, 2))], retention_days=3)
    assert days_expected(catalogue, date(2013, 8, 4)) == [2]
    assert days_expected(catalogue, date(2013, 8, 5)) == []


def test_what_is_too_old_is_shown_as_unexpected_and_says_from_which_day_on_is_kept() -> None:
    old = "carrier/departures/2013-08-02/JFK"
    plan = a_plan(a_catalogue(retention_days=2), present=[old])
    assert names(plan.unexpected) == [old]
    assert plan.explain(plan.catalogue.parse(old)) == (
        State.NOT_EXPECTED,
        "flights keeps its newest 2 closed days, from 2013-08-03 on",
    )


def test_without_a_watermark_nothing_is_too_old() -> None:
    catalogue = a_catalogue(retention_days=1)
    old = catalogue.parse("carrier/departures/2013-08-02/JFK")
    assert catalogue.why_not_expected(old) is None
    assert catalogue.why_not_expected(old, date(2013, 8, 2)) is None
    assert catalogue.why_not_expected(old, date(2013, 8, 3)) == (
        "flights keeps its newest 1 closed days, from 2013-08-03 on"
    )


@pytest.mark.parametrize("days", [0, -1])
def test_to_keep_nothing_is_refused(days: int) -> None:
    with pytest.raises(CatalogueError) as refusal:
        a_catalogue(retention_days=days)
    assert str(refusal.value) == (
        f"retention_days of 'flights' is {days}; keep one day or more, or give None to keep all"
    )
