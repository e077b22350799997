"""What a cancellation costs: undoing a booking is not restoring what was before.

The rules are made up. Times are the traveller's own: a trip of 2013 is booked as if it were a day
before it, and from then on time passes for it as it does for us.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Fee:
    """What becomes of a price when its booking is cancelled; nothing is lost between the two."""

    fee_cents: int
    refund_cents: int


@dataclass(frozen=True, slots=True)
class FeeRule:
    """A share of the price, by the time that is left.

    Attributes:
        shares: Time left, at least, and per cent of the price; the longest time first.
    """

    shares: tuple[tuple[timedelta, int], ...]

    def fee(self, price_cents: int, left: timedelta) -> Fee:
        """Return the fee; with less time than the last share asks for, it is the whole price.

        A part of a cent is the traveller's.
        """
        per_cent = next((share for least, share in self.shares if left >= least), 100)
        fee_cents = price_cents * per_cent // 100
        return Fee(fee_cents, price_cents - fee_cents)


FLIGHT_FEES = FeeRule(((timedelta(days=14), 10), (timedelta(days=2), 50)))
HOTEL_FEES = FeeRule(((timedelta(days=7), 5), (timedelta(days=1), 30)))


def own_time(as_if: datetime, booked_at: datetime, now: datetime) -> datetime:
    """Return the traveller's own time.

    Args:
        as_if: What it was when the booking was made.
        booked_at: When that was.
    """
    return as_if + (now - booked_at)
