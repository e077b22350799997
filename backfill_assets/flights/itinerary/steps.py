"""What the steps of an itinerary do, and what takes them back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.flights.itinerary import hotels, seats
from backfill_assets.flights.itinerary.bookings import Leg, Stay

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from backfill_assets.core.operations import Json
    from backfill_assets.flights.itinerary.partner import HotelPartner
    from backfill_assets.stores.sagas.actions import DoCall, UndoCall


@dataclass(frozen=True, slots=True)
class ItinerarySteps:
    """The code behind the names in the definition.

    What is booked carries the idempotency key of its step, which no other booking has.

    Args:
        clock: Gives the present instant, aware: fees depend on it.
    """

    partner: HotelPartner
    clock: Callable[[], datetime]

    @property
    def do(self) -> dict[str, Callable[[DoCall], Json]]:
        """By registered name."""
        return {
            "reserve_seat": self.reserve_seat,
            "book_room": self.book_room,
            "book_partner_room": self.book_partner_room,
        }

    @property
    def undo(self) -> dict[str, Callable[[UndoCall], Json]]:
        """By registered name."""
        return {
            "cancel_seat": self.cancel_seat,
            "cancel_room": self.cancel_room,
            "cancel_partner_room": self.cancel_partner_room,
        }

    def reserve_seat(self, call: DoCall) -> Json:
        """Take a seat in a flight."""
        leg = Leg.of(call.arguments)
        return seats.reserve(call.connection, call.attempt.remote_key, leg, self.clock())

    def cancel_seat(self, call: UndoCall) -> Json:
        """Give a seat back; a change by somebody else is left alone."""
        by = call.attempt.remote_key
        return seats.cancel(call.connection, call.do_key, _written(call), by, self.clock())

    def book_room(self, call: DoCall) -> Json:
        """Take a room in a hotel whose books are ours."""
        stay = Stay.of(call.arguments)
        return hotels.book(call.connection, call.attempt.remote_key, stay, self.clock())

    def cancel_room(self, call: UndoCall) -> Json:
        """Give a room of ours back; a change by somebody else is left alone."""
        by = call.attempt.remote_key
        wrote, now = _written(call), self.clock()
        return hotels.cancel(call.connection, call.do_key, wrote, by, now, is_known=True)

    def book_partner_room(self, call: DoCall) -> Json:
        """Have the partner book a room."""
        return self.partner.book(call.attempt.remote_key, Stay.of(call.arguments), call.deadline)

    def cancel_partner_room(self, call: UndoCall) -> Json:
        """Have the partner cancel what came, or may still come, under the key of the booking."""
        wrote = _written(call) if call.has_receipt else _asked(call)
        key = call.attempt.remote_key
        return self.partner.cancel(
            key, call.do_key, wrote, call.deadline, is_known=call.has_receipt
        )


def _written(call: UndoCall) -> Mapping[str, Json]:
    """Return what doing the step wrote; nothing like a booking where a person vouched for it."""
    return call.receipt if isinstance(call.receipt, Mapping) else {"receipt": call.receipt}


def _asked(call: UndoCall) -> Mapping[str, Json]:
    """Return what was asked for, as the booking has it where it came."""
    return {
        name: value
        for name, value in Stay.of(call.arguments).model_dump(mode="json").items()
        if name != "as_if"  # one instant can be written in two ways
    }
