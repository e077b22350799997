"""Which round of a day's release is next, and what its manifest says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.releases import (
    HoldDay,
    Leave,
    Manifest,
    ReleaseKey,
    Round,
    StartRound,
    complete_days,
    digest_of_records,
    next_for_day,
)
from backfill_assets.core.sagas import SagaStatus
from backfill_assets.core.store import CommitRecord
from backfill_assets_tests.core.examples import a_catalogue

DAY = date(2013, 8, 3)
KEY = ReleaseKey("flights", DAY)
AT = datetime(2013, 8, 4, 12, tzinfo=UTC)
RECORDS = (
    CommitRecord("flights/carrier/delay/2013-08-03/JFK", 1, 2, "d1"),
    CommitRecord("flights/carrier/delay/2013-08-03/EWR", 1, 3, "d2"),
)


def a_round(number: int, status: SagaStatus = SagaStatus.COMPENSATED, **more: object) -> Round:
    values = {"key": replace(KEY, round=number), "status": status, "updated_at": AT, **more}
    return Round(**values)  # type: ignore[arg-type]


def next_of(*rounds: Round, after: timedelta = timedelta(0)) -> StartRound | HoldDay | Leave:
    return next_for_day("flights", DAY, rounds, AT + after)


def test_a_key_is_the_catalogue_the_day_and_from_the_second_on_the_round() -> None:
    assert str(KEY) == "flights/2013-08-03"
    assert str(KEY.following) == "flights/2013-08-03/2"
    assert KEY.following.saga_id == "release_day/flights/2013-08-03/2"
    for key in (KEY, KEY.following):
        assert ReleaseKey.parse(str(key)) == key
        assert ReleaseKey.of_arguments(key.arguments) == key


@pytest.mark.parametrize("text", ["", "flights", "flights/20130803", "flights/2013-08-03/x", "/1"])
def test_what_is_no_key_is_none(text: str) -> None:
    assert ReleaseKey.parse(text) is None


def test_a_day_without_rounds_begins_with_the_first() -> None:
    assert next_of() == StartRound(KEY)


@pytest.mark.parametrize("status", [s for s in SagaStatus if s is not SagaStatus.COMPENSATED])
def test_a_day_that_is_released_or_on_its_way_is_left_alone(status: SagaStatus) -> None:
    assert isinstance(next_of(a_round(1), a_round(2, status), after=timedelta(days=9)), Leave)


def test_a_round_that_failed_is_followed_by_another_after_a_wait_that_doubles() -> None:
    first, second = a_round(1), a_round(2)
    assert isinstance(next_of(first, after=timedelta(seconds=59)), Leave)
    assert next_of(first, after=timedelta(seconds=60)) == StartRound(replace(KEY, round=2))
    assert isinstance(next_of(first, second, after=timedelta(seconds=119)), Leave)
    assert next_of(first, second, after=timedelta(minutes=2)) == StartRound(replace(KEY, round=3))


def test_the_third_failure_in_a_row_holds_the_day() -> None:
    rounds = [a_round(1), a_round(2), a_round(3, why="JFK is damaged")]
    assert next_of(*rounds) == HoldDay(
        rounds[-1].key, "its release was taken back 3 times: JFK is damaged"
    )
    stood_between = [rounds[0], a_round(2, SagaStatus.COMPLETED), rounds[2]]
    assert isinstance(next_of(*stood_between), Leave)


def test_a_person_who_takes_a_day_back_has_it_held_at_once() -> None:
    taken = a_round(1, is_by_person=True, why="wrong")
    assert next_of(taken) == HoldDay(KEY, "release_day/flights/2013-08-03 was retracted: wrong")


def test_a_day_that_was_held_and_let_go_is_released_in_the_next_round() -> None:
    rounds = [a_round(1), a_round(2), a_round(3, was_held=True)]
    assert next_of(*rounds) == StartRound(replace(KEY, round=4))
    assert next_of(a_round(1, is_by_person=True, was_held=True)) == StartRound(KEY.following)


def test_a_day_is_complete_when_everything_expected_of_it_stands() -> None:
    catalogue = a_catalogue()
    days = [date(2013, 8, 4), DAY]
    expected = PartitionSet.rectangle(catalogue, catalogue.queries, days, 0b11)
    lacking = PartitionSet.rectangle(catalogue, catalogue.queries[:1], days[:1], 0b10)
    assert complete_days(expected, expected) == days
    assert complete_days(expected, expected - lacking) == [DAY]
    assert complete_days(expected, PartitionSet.empty(catalogue)) == []


def test_a_manifest_comes_back_from_its_text_and_one_that_is_cut_short_is_none() -> None:
    manifest = Manifest(KEY.following, RECORDS)
    text = manifest.text()
    assert Manifest.parse(text) == manifest
    assert manifest.rows == 5
    for end in range(0, len(text) - 1, 7):
        assert Manifest.parse(text[:end]) is None
    assert Manifest.parse(text.replace("d1", "d3")) is None
    assert Manifest.parse("[]") is None
    assert Manifest.parse("{}") is None


def test_the_digest_of_a_day_depends_on_its_content_alone() -> None:
    one, other = RECORDS
    fingerprinted = replace(one, source="f")
    assert digest_of_records([one, other]) == digest_of_records([other, fingerprinted])
    assert digest_of_records([one, other]) != digest_of_records([one, replace(other, rows=4)])
    assert Manifest(KEY, RECORDS).digest == Manifest(KEY.following, RECORDS).digest
