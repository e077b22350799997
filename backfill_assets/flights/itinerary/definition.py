"""The saga of an itinerary: three flights first, then two hotels; undone in an order of its own.

Hotels come after all flights, so that a flight that is full costs no hotel's fee. A hotel that is
full undoes nothing: a person picks another one, tries again, or cancels.
"""

from __future__ import annotations

from datetime import timedelta

from backfill_assets.core.operations import Kind
from backfill_assets.core.sagas import OnFailure, Retries, SagaDefinition, Step

FLIGHTS = ("first_flight", "onward_flight", "return_flight")
HOTELS = ("first_hotel", "second_hotel")
WRITE_TIMEOUT = timedelta(seconds=20)  # a transaction takes milliseconds; locks outlive it
PARTNER_TIMEOUT = timedelta(seconds=30)  # three times as long as an answer is waited for
PARTNER_RETRIES = Retries(max_attempts=5, first_wait=timedelta(seconds=2))  # half a minute in all
# Seats are scarcer than rooms, and a partner that is down must not keep them.
SEATS_FIRST, ROOMS_AFTER = 0, 1


def _flight(name: str) -> Step:
    return Step(
        name=name,
        kind=Kind.TRANSACTIONAL,
        do="reserve_seat",
        undo="cancel_seat",
        undo_order=SEATS_FIRST,
        locks=("flight/{flight}/{origin}/{day}",),
        timeout=WRITE_TIMEOUT,
    )


BOOK_ITINERARY = SagaDefinition(
    name="book_itinerary",
    description=(
        "Two flights out, one back, and a room at each of the two stops. The first flight is a "
        "real one of 2013; onward and return flights, hotels and prices are made up."
    ),
    on_failure=OnFailure.COMPENSATE,
    steps=(
        *map(_flight, FLIGHTS),
        Step(
            name="first_hotel",
            kind=Kind.TRANSACTIONAL,
            do="book_room",
            undo="cancel_room",
            after=FLIGHTS,
            undo_order=ROOMS_AFTER,
            on_failure=OnFailure.ASK,
            locks=("hotel/{hotel}",),
            timeout=WRITE_TIMEOUT,
        ),
        Step(
            name="second_hotel",
            kind=Kind.REMOTE,
            do="book_partner_room",
            undo="cancel_partner_room",
            after=FLIGHTS,
            undo_order=ROOMS_AFTER,
            on_failure=OnFailure.ASK,
            locks=("hotel/{hotel}",),
            timeout=PARTNER_TIMEOUT,
            retries=PARTNER_RETRIES,
            is_deduplicated=True,
        ),
    ),
)
