"""What we say to the hotel partner, and what its answers, or their absence, mean for us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from backfill_assets.core.errors import (
    ConflictError,
    NotAppliedError,
    NothingFreeError,
    RemoteUnreachableError,
    TryAgainError,
)
from backfill_assets.flights.itinerary.hotels import FreeRooms, offers
from backfill_assets.stores.http_calls import Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from backfill_assets.core.operations import Json
    from backfill_assets.flights.itinerary.bookings import Stay

NAME = "the hotel partner"
ANSWER_SECONDS = 10.0  # it takes milliseconds; a step tries again after that
LOOK_SECONDS = 3.0  # what is only looked up is done without when it takes longer


@dataclass(frozen=True, slots=True)
class HotelPartner:
    """The partner, as our side sees it.

    Args:
        url: Gives its address; raises RemoteUnreachableError where it was never started.
        clock: Gives the present instant, aware.
        answer_seconds: How long an answer may take.
    """

    url: Callable[[], str]
    clock: Callable[[], datetime]
    answer_seconds: float = ANSWER_SECONDS

    def book(self, key: str, stay: Stay, deadline: datetime) -> Json:
        """Book a stay under its key, and return it as the partner has written it down.

        Raises:
            TryAgainError: nothing listens there; nothing was sent.
            NothingFreeError: the hotel is full; the message offers what is free in the same city.
            NotAppliedError: it was refused.
            RemoteError: nobody can tell whether it was booked.
        """
        body: Json = {"booking": key, "stay": stay.arguments}
        try:
            return self._post("/v1/bookings", key, body, deadline)
        except TryAgainError:
            raise
        except NotAppliedError as error:
            free = self._free(stay)
            if free is None or stay.hotel in {one.hotel for one in free}:
                raise
            message = f"{stay.hotel} has no room, {stay.sentence}; {offers(free, stay)}"
            raise NothingFreeError(message) from error

    def cancel(
        self,
        key: str,
        booking: str,
        wrote: Mapping[str, Json],
        deadline: datetime,
        *,
        is_known: bool,
    ) -> Json:
        """Cancel a booking, or keep it out where it never came; return fee and refund.

        Args:
            booking: The key that it was booked under.
            wrote: What the partner answered then or, where that was never heard, what was asked.
            is_known: Whether it is known to have been booked.

        Raises:
            TryAgainError: nothing listens there; nothing was sent.
            ConflictError: somebody else has changed it since.
            RemoteError: nobody can tell whether it was cancelled.
        """
        body: Json = {"booking": booking, "by": key, "wrote": dict(wrote), "is_known": is_known}
        try:
            return self._post("/v1/cancellations", key, body, deadline)
        except TryAgainError:
            raise
        except NotAppliedError as error:
            found = self._look("/v1/bookings", {"booking": booking})
            evidence: Json = {"wrote": dict(wrote), "found": found}
            message = f"{NAME} refuses to cancel {booking!r}, which somebody else changed"
            raise ConflictError(message, evidence) from error

    def _free(self, stay: Stay) -> list[FreeRooms] | None:
        """Return what is free where a stay was to be, or None where the partner does not say."""
        asked = stay.model_dump(mode="json", include={"city", "first_night", "nights"})
        found = self._look("/v1/free", asked)
        return None if found is None else [FreeRooms(**one) for one in found]

    def _post(self, path: str, key: str, body: Json, deadline: datetime) -> Json:
        left = (deadline - self.clock()).total_seconds()
        if left <= 0:
            raise TryAgainError(f"{NAME} was not asked: the time of this attempt is over")
        with Caller(NAME, self.url, answer_seconds=min(left, self.answer_seconds)) as caller:
            try:
                return caller.post(path, key, body)
            except RemoteUnreachableError as error:
                raise TryAgainError(str(error)) from error

    def _look(self, path: str, asked: Mapping[str, Any]) -> Any:
        """Return an answer that we can do without, or None."""
        try:
            # Not through a proxy that the environment names: the server is on this machine.
            answer = httpx.get(
                f"{self.url()}{path}", params=asked, timeout=LOOK_SECONDS, trust_env=False
            )
            return answer.raise_for_status().json()
        except (httpx.HTTPError, ValueError, RemoteUnreachableError):
            return None
