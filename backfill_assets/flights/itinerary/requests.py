"""What somebody asks for, made into the steps of a saga; flights and hotels are put on offer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from backfill_assets.core.errors import BookingRefusedError
from backfill_assets.flights.connection import connected
from backfill_assets.flights.itinerary import hotels, seats
from backfill_assets.flights.itinerary.bookings import MAX_NIGHTS, Leg, Stay
from backfill_assets.flights.itinerary.definition import FLIGHTS
from backfill_assets.flights.itinerary.seats import Flight
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    import psycopg

    from backfill_assets.core.operations import Json

_STATEMENTS = load_statements("backfill_assets.flights.itinerary", "offers.sql")
ASSUMED_SEATS = 150  # where the aircraft register knows no seats, or not the aircraft
MADE_UP_SEATS = 120
MADE_UP_PRICE_CENTS = 24_900
BASE_PRICE_CENTS, CENTS_A_MILE = 5_000, 9
MADE_UP_DEPARTURE = time(12, tzinfo=UTC)
USUALLY_BEFORE = timedelta(days=30)  # where nobody says when it is booked


class ItineraryRequest(BaseModel):
    """A journey: out by a real flight, on to a second city, and back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    booking: str = Field(
        min_length=1,
        max_length=60,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Its name; asking twice is once.",
    )
    traveller: str = Field(min_length=1, max_length=100)
    flight: str = Field(description="A real flight of 2013 from New York: carrier and number.")
    origin: str = Field(description="EWR, JFK or LGA.")
    day: date
    onward_to: str = Field(
        pattern=r"^[A-Z]{3}$", description="The second city, by the code of its airport."
    )
    first_nights: int = Field(2, ge=1, le=MAX_NIGHTS)
    second_nights: int = Field(3, ge=1, le=MAX_NIGHTS)
    first_hotel: str = Field("", description="One of ours; empty is the cheapest.")
    second_hotel: str = Field("", description="One of the partner's; empty is the cheapest.")
    as_if: AwareDatetime | None = Field(
        None, description="The traveller's own time: it decides about fees; 30 days before."
    )

    @property
    def own_time(self) -> datetime:
        """The traveller's own time when it is booked."""
        return self.as_if or datetime.combine(self.day, MADE_UP_DEPARTURE) - USUALLY_BEFORE


@dataclass(frozen=True, slots=True)
class Journey:
    """A request, with what the flights database says about its first flight."""

    request: ItineraryRequest
    first: Flight

    @property
    def flights(self) -> tuple[Flight, Flight, Flight]:
        """The real flight, and two that are made up, and are called so."""
        first, request = self.first, self.request
        onward_day = request.day + timedelta(days=request.first_nights)
        return_day = onward_day + timedelta(days=request.second_nights)
        return (
            first,
            _made_up(first.destination, request.onward_to, onward_day),
            _made_up(request.onward_to, request.origin, return_day),
        )

    @property
    def arguments(self) -> dict[str, Json]:
        """The arguments of each step of the saga."""
        request = self.request
        person: dict[str, Any] = {"traveller": request.traveller, "as_if": request.own_time}
        legs = {
            step: Leg(
                flight=flight.flight,
                origin=flight.origin,
                destination=flight.destination,
                day=flight.day,
                **person,
            )
            for step, flight in zip(FLIGHTS, self.flights, strict=True)
        }
        city = self.first.destination
        first_stay = Stay(
            hotel=request.first_hotel or f"{city} {hotels.OURS[0]}",
            city=city,
            first_night=request.day,
            nights=request.first_nights,
            **person,
        )
        second_stay = Stay(
            hotel=request.second_hotel or f"{request.onward_to} {hotels.PARTNERS[0]}",
            city=request.onward_to,
            first_night=self.flights[1].day,
            nights=request.second_nights,
            **person,
        )
        steps = {**legs, "first_hotel": first_stay, "second_hotel": second_stay}
        return {name: booking.arguments for name, booking in steps.items()}


def plan_journey(source_url: str, request: ItineraryRequest) -> Journey:
    """Return the journey that somebody asks for.

    Raises:
        BookingRefusedError: no such flight left that airport on that day; names some that did.
        SourceError: the flights database is not reached.
    """
    named = request.model_dump(include={"flight", "origin", "day"})
    with connected(source_url) as connection:
        with connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(_STATEMENTS["real_flight"], named).fetchone()
        if row is None:
            raise _unknown(connection, request)
    if request.onward_to in (row["destination"], request.origin):
        message = f"onward_to: {request.onward_to} is where it comes from; name another city"
        raise BookingRefusedError(message)
    first = Flight(
        **named,
        destination=row["destination"],
        departs_at=row["departs_at"],
        seats=row["seats"] or ASSUMED_SEATS,
        seats_from="aircraft register" if row["seats"] else "assumed",
        is_made_up=False,
        price_cents=BASE_PRICE_CENTS + CENTS_A_MILE * row["distance"],
    )
    return Journey(request, first)


def put_on_offer(connection: psycopg.Connection, journey: Journey) -> None:
    """Make the tables, and put flights and hotels of ours on offer; twice is once."""
    seats.make_tables(connection)
    hotels.make_tables(connection)
    with connection.transaction():
        for flight in journey.flights:
            seats.offer(connection, flight)
        hotels.open_hotels(connection, journey.first.destination, hotels.OURS)


def _made_up(origin: str, destination: str, day: date) -> Flight:
    return Flight(
        flight=f"made-up {origin}-{destination}",
        origin=origin,
        day=day,
        destination=destination,
        departs_at=datetime.combine(day, MADE_UP_DEPARTURE),
        seats=MADE_UP_SEATS,
        seats_from="assumed",
        is_made_up=True,
        price_cents=MADE_UP_PRICE_CENTS,
    )


def _unknown(connection: psycopg.Connection, request: ItineraryRequest) -> BookingRefusedError:
    named = request.model_dump(include={"origin", "day"})
    there = [text for (text,) in connection.execute(_STATEMENTS["departures"], named)]
    message = (
        f"no flight {request.flight!r} left {request.origin!r} on {request.day}; there was "
        f"{', '.join(there) or 'none at all'}"
    )
    return BookingRefusedError(message)
