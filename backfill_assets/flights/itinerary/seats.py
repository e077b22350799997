"""Seats in flights: taken and given back in the caller's transaction, never one too many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.rows import dict_row

from backfill_assets.core.errors import BookingRefusedError, NothingFreeError
from backfill_assets.flights.itinerary.bookings import changes, conflict, facts
from backfill_assets.flights.itinerary.fees import FLIGHT_FEES, own_time
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    import psycopg

    from backfill_assets.core.operations import Json
    from backfill_assets.flights.itinerary.bookings import Leg

_STATEMENTS = load_statements("backfill_assets.flights.itinerary", "seats.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A flight on offer.

    Attributes:
        seats_from: ``aircraft register``, or ``assumed`` where that does not know the aircraft.
        is_made_up: Whether there never was such a flight.
    """

    flight: str
    origin: str
    day: date
    destination: str
    departs_at: datetime
    seats: int
    seats_from: str
    is_made_up: bool
    price_cents: int


def make_tables(connection: psycopg.Connection) -> None:
    """Make the tables where they are not there yet; one process at a time."""
    with connection.transaction():
        connection.execute(_STATEMENTS["lock"])
        connection.execute(_STATEMENTS["create"])


def offer(connection: psycopg.Connection, flight: Flight) -> None:
    """Put a flight on offer, unless it is already."""
    values = {name: getattr(flight, name) for name in flight.__slots__}
    connection.execute(_STATEMENTS["offer"], values)


def reserve(connection: psycopg.Connection, booking: str, leg: Leg, now: datetime) -> Json:
    """Take a seat, and return it as it was written down.

    Args:
        booking: The idempotency key.

    Raises:
        NothingFreeError: the flight is full.
        BookingRefusedError: there is no such flight on offer.
    """
    values = {**leg.model_dump(), "booking": booking, "booked_at": now}
    row = connection.execute(_STATEMENTS["take"], values).fetchone()
    if row is None:
        raise _nothing_free(connection, leg)
    values["price_cents"] = values["cents"] = row[0]
    with connection.cursor(row_factory=dict_row) as cursor:
        written = cursor.execute(_STATEMENTS["write"], values).fetchone()
    connection.execute(_STATEMENTS["charge"], values)
    return facts(written or {})


def cancel(
    connection: psycopg.Connection, booking: str, wrote: Mapping[str, Json], by: str, now: datetime
) -> Json:
    """Give a seat back for a fee; only if it is still as it was written down.

    Args:
        wrote: What ``reserve`` returned.
        by: The idempotency key of the cancellation.

    Returns:
        The fee and the refund, in cents.

    Raises:
        ConflictError: somebody else changed, cancelled or removed it; it stays as it is.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_STATEMENTS["booked"], {"booking": booking}).fetchone()
    if row is None or changes(wrote, row):
        raise conflict(f"seat {booking!r}", wrote, row)
    left = row["departs_at"] - own_time(row["as_if"], row["booked_at"], now)
    fee = FLIGHT_FEES.fee(row["price_cents"], left)
    values = {
        **row,
        "booking": booking,
        "cancelled_by": by,
        "fee_cents": fee.fee_cents,
        "refund_cents": fee.refund_cents,
        "cents": fee.refund_cents,
    }
    for name in ("cancel", "free", "refund"):
        connection.execute(_STATEMENTS[name], values)
    return {"fee_cents": fee.fee_cents, "refund_cents": fee.refund_cents}


def _nothing_free(connection: psycopg.Connection, leg: Leg) -> Exception:
    what = f"{leg.flight} from {leg.origin} on {leg.day}"
    if connection.execute(_STATEMENTS["offered"], leg.model_dump()).fetchone() is None:
        return BookingRefusedError(f"{what} is not on offer; book it with the job book_itinerary")
    return NothingFreeError(f"{what} is full")
