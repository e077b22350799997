"""The pace of a sensor: short looks follow each other, long ones are followed by a rest."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from backfill_assets.resources.pace import (
    LONG_LOOK_SECONDS,
    LONGEST_REST_SECONDS,
    RESTS,
    Pace,
)


@dataclass(slots=True)
class Hands:
    """Two clocks that a test moves."""

    now: float = 1_000.0
    used: float = 5.0


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def pace(hands: Hands) -> Pace:
    return Pace(clock=lambda: hands.now, used=lambda: hands.used)


def look(pace: Pace, hands: Hands, seconds: float) -> None:
    with pace.look():
        hands.used += seconds
        hands.now += 2 * seconds  # it waits as well


def test_the_first_look_is_at_once(pace: Pace) -> None:
    assert pace.rest_left <= 0


def test_a_short_look_is_followed_by_none(pace: Pace, hands: Hands) -> None:
    look(pace, hands, LONG_LOOK_SECONDS)
    assert pace.rest_left <= 0


def test_after_a_long_look_it_rests_so_long_that_looking_costs_a_twentieth(
    pace: Pace, hands: Hands
) -> None:
    look(pace, hands, 1.5)
    assert pace.rest_left == pytest.approx(RESTS * 1.5)
    hands.now += RESTS * 1.5
    assert pace.rest_left <= 0
    look(pace, hands, 0.1)
    assert pace.rest_left <= 0


def test_no_rest_is_longer_than_a_minute(pace: Pace, hands: Hands) -> None:
    look(pace, hands, 100)
    assert pace.rest_left == pytest.approx(LONGEST_REST_SECONDS)


def test_where_there_is_work_and_after_an_error_it_looks_again_at_once(
    pace: Pace, hands: Hands
) -> None:
    look(pace, hands, 1.5)
    pace.go_on()
    assert pace.rest_left <= 0

    def fail() -> None:
        with pace.look():
            hands.used += 1.5
            raise OSError("the disk is away")

    with pytest.raises(OSError, match="away"):
        fail()
    assert pace.rest_left <= 0
