"""What a form asks for, made into steps with real flights of 2013."""

from __future__ import annotations

from datetime import date
from typing import Any

import psycopg
import pytest

from backfill_assets.core.errors import BookingRefusedError
from backfill_assets.flights.itinerary.requests import (
    ItineraryRequest,
    plan_journey,
    put_on_offer,
)
from backfill_assets_tests.flights.itinerary.journeys import FIRST, JOURNEY, REQUEST


def request(**changes: Any) -> ItineraryRequest:
    return ItineraryRequest.model_validate(REQUEST.model_dump() | changes)


def test_the_first_flight_is_a_real_one_with_the_seats_of_its_aircraft(flights_url: str) -> None:
    assert plan_journey(flights_url, REQUEST).first == FIRST


def test_seats_are_assumed_where_the_register_knows_none(flights_url: str) -> None:
    journey = plan_journey(flights_url, request(flight="AA269"))

    assert journey.first.destination == "SEA"
    assert (journey.first.seats, journey.first.seats_from) == (150, "assumed")


def test_stays_begin_when_one_arrives_and_end_when_one_leaves() -> None:
    arguments: dict[str, Any] = dict(JOURNEY.arguments)

    days = [arguments[leg]["day"] for leg in ("first_flight", "onward_flight", "return_flight")]
    assert days == ["2013-08-03", "2013-08-05", "2013-08-08"]
    stays = [arguments[name] for name in ("first_hotel", "second_hotel")]
    assert [(s["hotel"], s["first_night"], s["nights"]) for s in stays] == [
        ("SFO Central", "2013-08-03", 2),
        ("HNL Grand", "2013-08-05", 3),
    ]


def test_without_a_time_it_is_booked_thirty_days_before() -> None:
    assert request(as_if=None).own_time.isoformat() == "2013-07-04T12:00:00+00:00"


def test_a_flight_that_never_was_is_refused_with_some_that_were(flights_url: str) -> None:
    with pytest.raises(BookingRefusedError, match=r"left 'JFK' on 2013-08-03; there was .* to "):
        plan_journey(flights_url, request(flight="ZZ1"))
    with pytest.raises(BookingRefusedError, match="there was none at all"):
        plan_journey(flights_url, request(day=date(2014, 8, 3)))


def test_a_second_city_is_another_one(flights_url: str) -> None:
    with pytest.raises(BookingRefusedError, match="SFO is where it comes from"):
        plan_journey(flights_url, request(onward_to="SFO"))


def test_what_is_on_offer_already_stays_as_it_is(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        put_on_offer(connection, JOURNEY)
        connection.execute("UPDATE itinerary.flight SET taken = 7, seats = 9")
        put_on_offer(connection, JOURNEY)
        found = connection.execute("SELECT DISTINCT taken, seats FROM itinerary.flight").fetchall()

    assert found == [(7, 9)]
