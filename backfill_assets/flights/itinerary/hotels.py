"""A seller's books of hotel rooms: written in the caller's transaction, never one room too many.

Ours and the partner's are kept alike, in databases that do not know of each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from backfill_assets.core.errors import BookingRefusedError, NothingFreeError
from backfill_assets.flights.itinerary.bookings import arrival, changes, conflict, facts
from backfill_assets.flights.itinerary.fees import HOTEL_FEES, own_time
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import Json
    from backfill_assets.flights.itinerary.bookings import Stay
    from backfill_assets.flights.itinerary.fees import Fee

_STATEMENTS = load_statements("backfill_assets.flights.itinerary", "hotels.sql")
OURS = ("Central", "Park", "Station")
PARTNERS = ("Grand", "Harbour", "Garden")
ROOMS = 12
FIRST_PRICE_CENTS, MORE_CENTS = 12_000, 3_500  # the first hotel of a city is the cheapest


@dataclass(frozen=True, slots=True)
class FreeRooms:
    """A hotel with rooms that are free every night of a stay.

    Attributes:
        price_cents: Of a night.
    """

    hotel: str
    price_cents: int
    rooms: int

    def __str__(self) -> str:
        return f"{self.hotel} ({self.rooms} free, {self.price_cents / 100:.2f} a night)"


def make_tables(connection: psycopg.Connection) -> None:
    """Make the tables where they are not there yet; one process at a time."""
    with connection.transaction():
        connection.execute(_STATEMENTS["lock"])
        connection.execute(_STATEMENTS["create"])


def open_hotels(connection: psycopg.Connection, city: str, names: Iterable[str]) -> None:
    """Open a seller's made-up hotels in a city, unless they are open already."""
    for number, name in enumerate(names):
        values = {
            "hotel": f"{city} {name}",
            "city": city,
            "rooms": ROOMS,
            "price_cents": FIRST_PRICE_CENTS + number * MORE_CENTS,
        }
        connection.execute(_STATEMENTS["open"], values)


def book(connection: psycopg.Connection, booking: str, stay: Stay, now: datetime) -> Json:
    """Take a room for every night of a stay, and return the stay as it was written down.

    Args:
        booking: The idempotency key.

    Raises:
        NothingFreeError: a night is full; the message offers what is free in the same city.
        BookingRefusedError: there is no such hotel in that city, or the booking was cancelled
            before it came.
    """
    values = {**stay.model_dump(), "booking": booking, "booked_at": now}
    price = connection.execute(_STATEMENTS["price"], values).fetchone()
    if price is None:
        raise _refused(
            BookingRefusedError, f"{stay.city} has no hotel {stay.hotel!r}", connection, stay
        )
    values["price_cents"] = values["cents"] = price[0] * stay.nights
    with connection.cursor(row_factory=dict_row) as cursor:
        written = cursor.execute(_STATEMENTS["write"], values).fetchone()
    if written is None:
        raise BookingRefusedError(f"booking {booking!r} was made or cancelled before")
    if connection.execute(_STATEMENTS["take"], values).rowcount < stay.nights:
        raise _refused(NothingFreeError, f"{stay.hotel} is full, {stay.sentence}", connection, stay)
    connection.execute(_STATEMENTS["charge"], values)
    return facts(written)


def cancel(
    connection: psycopg.Connection,
    booking: str,
    wrote: Mapping[str, Json],
    by: str,
    now: datetime,
    *,
    is_known: bool,
) -> Json:
    """Give the rooms of a stay back for a fee; only if it is still as it was written down.

    A booking that never came is kept out from now on.

    Args:
        wrote: What ``book`` returned or, where that was never heard, what was asked of it.
        by: The idempotency key of the cancellation; the same one again changes nothing.
        is_known: Whether it is known to have been booked.

    Returns:
        The fee and the refund, in cents.

    Raises:
        ConflictError: somebody else changed, cancelled or removed it; it stays as it is.
    """
    values = {"booking": booking, "cancelled_by": by}
    if not is_known and connection.execute(_STATEMENTS["refuse"], values).fetchone() is not None:
        return {"fee_cents": 0, "refund_cents": 0}
    row = find(connection, booking)
    if row is not None and row["cancelled_by"] == by:
        return {"fee_cents": row["fee_cents"] or 0, "refund_cents": row["refund_cents"] or 0}
    if row is None or changes(wrote, row):
        raise conflict(f"stay {booking!r}", wrote, row)
    left = arrival(row["first_night"]) - own_time(row["as_if"], row["booked_at"], now)
    return _give_back(connection, row | values, HOTEL_FEES.fee(row["price_cents"], left))


def find(connection: psycopg.Connection, booking: str) -> dict[str, Any] | None:
    """Return a stay as it stands, held until the caller's transaction ends, or None."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_STATEMENTS["booked"], {"booking": booking}).fetchone()


def free_rooms(connection: psycopg.Connection, stay: Stay) -> list[FreeRooms]:
    """Return the hotels of a stay's city that are free all its nights, the cheapest first."""
    rows = connection.execute(_STATEMENTS["free_rooms"], stay.model_dump())
    return [FreeRooms(*row) for row in rows]


def offers(free: Sequence[FreeRooms], stay: Stay) -> str:
    """Return what a person can have instead of a stay, and the arguments that say so."""
    if not free:
        return f"nothing else is free in {stay.city}"
    other = stay.model_copy(update={"hotel": free[0].hotel})
    return (
        f"free in {stay.city}: {', '.join(map(str, free))}; "
        f"to have the first of them, replace with {json.dumps(other.arguments)}"
    )


def _give_back(connection: psycopg.Connection, values: dict[str, Any], fee: Fee) -> Json:
    values |= {"fee_cents": fee.fee_cents, "refund_cents": fee.refund_cents}
    values["cents"] = fee.refund_cents
    for name in ("cancel", "free", "refund"):
        connection.execute(_STATEMENTS[name], values)
    return {"fee_cents": fee.fee_cents, "refund_cents": fee.refund_cents}


def _refused(
    kind: type[BookingRefusedError], what: str, connection: psycopg.Connection, stay: Stay
) -> BookingRefusedError:
    return kind(f"{what}; {offers(free_rooms(connection, stay), stay)}")
