"""A world in which itineraries are booked, and in which anything can go wrong at named points.

Our books stand in one database, the partner's in another that only its process opens. What is
booked is read from both, and never from what sagas say about themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import psycopg

from backfill_assets.flights.itinerary import hotels
from backfill_assets.flights.itinerary.definition import BOOK_ITINERARY, FLIGHTS, HOTELS
from backfill_assets.flights.itinerary.partner import HotelPartner
from backfill_assets.flights.itinerary.requests import ItineraryRequest, Journey, put_on_offer
from backfill_assets.flights.itinerary.seats import Flight
from backfill_assets.flights.itinerary.steps import ItinerarySteps
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.sagas.actions import SagaRegistry
from backfill_assets.stores.sagas.sagas import Sagas
from backfill_assets.stores.sagas.schema import prepare_schema
from backfill_assets_tests.stores.sagas.trip import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets_tests.flights.itinerary.partner_process import Partner

STEPS = (*FLIGHTS, *HOTELS)
AS_IF = datetime(2013, 7, 4, 12, tzinfo=UTC)  # thirty days before the first flight
REQUEST = ItineraryRequest(
    booking="1",
    traveller="Ada",
    flight="UA303",
    origin="JFK",
    day=date(2013, 8, 3),
    onward_to="HNL",
    as_if=AS_IF,
)
FIRST = Flight(
    flight="UA303",
    origin="JFK",
    day=date(2013, 8, 3),
    destination="SFO",
    departs_at=datetime(2013, 8, 3, 10, tzinfo=UTC),
    seats=178,
    seats_from="aircraft register",
    is_made_up=False,
    price_cents=28_274,
)
JOURNEY = Journey(REQUEST, FIRST)
# What each step costs: the flights, two nights at 120.00, three nights at 120.00.
PRICES = dict(zip(STEPS, (28_274, 24_900, 24_900, 24_000, 36_000), strict=True))
HOTEL_OF = {"first_hotel": "SFO Central", "second_hotel": "HNL Grand"}
ANSWER_SECONDS = 5.0  # a lost line is noticed at once: this is for a partner that is stopped


def prepare_ours(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        prepare_schema(connection)
        put_on_offer(connection, JOURNEY)


def prepare_partner(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        hotels.make_tables(connection)
        hotels.open_hotels(connection, "HNL", hotels.PARTNERS)


@dataclass
class World:
    """Our books, the partner's, and where faults are put in.

    Attributes:
        hooks: What happens at a point such as ``second_hotel.do.after``, one for each time it is
            reached; before the step's code runs, or after it has.
    """

    url: str
    partner_url: str
    partner: Partner
    clock: Clock = field(default_factory=Clock)
    hooks: dict[str, list[Callable[[], object]]] = field(default_factory=lambda: defaultdict(list))
    reached: Counter[str] = field(default_factory=Counter)
    opened: list[Sagas] = field(default_factory=list)
    answer_seconds: float = ANSWER_SECONDS

    def sagas(self, worker: str = "one") -> Sagas:
        """Return what a process would have: connections and a log of its own."""
        log = IdempotencyLog(
            lambda: self.url, worker=worker, clock=self.clock, sleep=self.clock.sleep
        )
        made = Sagas(
            lambda: self.url,
            log,
            self.registry(),
            worker=worker,
            clock=self.clock,
            sleep=self.clock.sleep,
            chance=lambda: 0.0,
        )
        self.opened.append(made)
        return made

    def registry(self) -> SagaRegistry:
        partner = HotelPartner(lambda: self.partner.url, self.clock, self.answer_seconds)
        steps = ItinerarySteps(partner, self.clock)
        return SagaRegistry(
            (BOOK_ITINERARY,),
            {name: self._hooked(act, "do") for name, act in steps.do.items()},
            {name: self._hooked(act, "undo") for name, act in steps.undo.items()},
        )

    def start(self, sagas: Sagas, key: str = "1", **changes: Any) -> Saga:
        arguments = {**JOURNEY.arguments, **changes}
        return sagas.start("book_itinerary", key, arguments, who="ada")

    def at(self, point: str) -> None:
        self.reached[point] += 1
        if self.hooks[point]:
            self.hooks[point].pop(0)()

    def execute(self, statement: str, *values: object) -> list[Any]:
        """Run a statement in our database, as somebody else would."""
        return _execute(self.url, statement, values)

    def execute_at_partner(self, statement: str, *values: object) -> list[Any]:
        return _execute(self.partner_url, statement, values)

    def applied(self, saga_id: str) -> set[str]:
        """Return the entries of a saga that are booked in the world, by their titles."""
        ours = "SELECT booking FROM itinerary.seat WHERE state = 'booked' UNION ALL"
        stays = "SELECT booking FROM hotels.stay WHERE state = 'booked'"
        found = [*self.execute(f"{ours} {stays}"), *self.execute_at_partner(stays)]
        return {key.split(".do:")[0] for (key,) in found if key.endswith(f":{saga_id}")}

    def spoil(self, step: str) -> None:
        """Leave no room or seat for a step."""
        if step in FLIGHTS:
            flight = JOURNEY.flights[FLIGHTS.index(step)].flight
            self.execute("UPDATE itinerary.flight SET seats = 1 WHERE flight = %s", flight)
            take = "UPDATE itinerary.flight SET taken = 1 WHERE flight = %s"
            self.execute(take, flight)
            return
        where = self.execute if step == "first_hotel" else self.execute_at_partner
        where("UPDATE hotels.hotel SET rooms = 0 WHERE hotel = %s", HOTEL_OF[step])

    def meddle(self, step: str) -> None:
        """Have somebody else change what a step has booked."""
        if step in FLIGHTS:
            booking = f"{step}.do:%"
            statement = "UPDATE itinerary.seat SET cabin = 'business' WHERE booking LIKE %s"
            self.execute(statement, booking)
            return
        where = self.execute if step == "first_hotel" else self.execute_at_partner
        where("UPDATE hotels.stay SET traveller = 'Bob' WHERE state = 'booked'")

    def meddled_with(self, step: str) -> bool:
        """Return whether the change by somebody else still stands."""
        if step in FLIGHTS:
            return bool(self.execute("SELECT 1 FROM itinerary.seat WHERE cabin = 'business'"))
        where = self.execute if step == "first_hotel" else self.execute_at_partner
        changed = "SELECT 1 FROM hotels.stay WHERE traveller = 'Bob' AND state = 'booked'"
        return bool(where(changed))

    def money(self) -> int:
        """Return what travellers have paid and not got back, in cents."""
        found = [
            *self.execute("SELECT what, cents FROM itinerary.payment"),
            *self.execute("SELECT what, cents FROM hotels.payment"),
            *self.execute_at_partner("SELECT what, cents FROM hotels.payment"),
        ]
        return sum(cents if what == "charge" else -cents for what, cents in found)

    def check_books(self) -> None:
        """Nothing is oversold, every count agrees with its rows, and no cent is lost."""
        assert self.execute(SEATS_WRONG) == []
        for where in (self.execute, self.execute_at_partner):
            assert where(ROOMS_WRONG) == []
            assert where(MONEY_WRONG.format(schema="hotels", table="stay")) == []
        assert self.execute(MONEY_WRONG.format(schema="itinerary", table="seat")) == []

    def _hooked(self, act: Callable[[Any], Any], direction: str) -> Callable[[Any], Any]:
        def hooked(call: Any) -> Any:
            self.at(f"{call.step}.{direction}.before")
            answer = act(call)
            self.at(f"{call.step}.{direction}.after")
            return answer

        return hooked


def _execute(url: str, statement: str, values: tuple[object, ...]) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, values or None)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


SEATS_WRONG = """
SELECT flight.flight, taken, seats, count(seat.booking)
  FROM itinerary.flight
  LEFT JOIN itinerary.seat ON seat.state = 'booked'
   AND (seat.flight, seat.origin, seat.day) = (flight.flight, flight.origin, flight.day)
 GROUP BY flight.flight, flight.origin, flight.day
HAVING taken > seats OR (taken <> count(seat.booking) AND seats > 1)
"""
ROOMS_WRONG = """
SELECT room_night.hotel, night, taken, rooms, count(stay.booking)
  FROM hotels.room_night
  LEFT JOIN hotels.stay ON state = 'booked' AND stay.hotel = room_night.hotel
   AND night >= first_night AND night < first_night + nights
 GROUP BY room_night.hotel, night
HAVING taken > rooms OR taken <> count(stay.booking)
"""
MONEY_WRONG = """
SELECT booking, state, price_cents, fee_cents, paid
  FROM (SELECT booking, sum(CASE what WHEN 'charge' THEN cents ELSE -cents END) AS paid
          FROM {schema}.payment GROUP BY booking) AS payments
  FULL JOIN {schema}.{table} USING (booking)
 WHERE state <> 'refused' AND paid IS DISTINCT FROM
       CASE state WHEN 'booked' THEN price_cents ELSE fee_cents END
"""
