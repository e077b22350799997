"""Itineraries as the rest of the project deals with them: offered, booked, and taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from pydantic import ValidationError

from backfill_assets.core.errors import BookingRefusedError, RemoteUnreachableError
from backfill_assets.flights.itinerary.definition import BOOK_ITINERARY
from backfill_assets.flights.itinerary.partner import NAME, HotelPartner
from backfill_assets.flights.itinerary.requests import (
    ItineraryRequest,
    plan_journey,
    put_on_offer,
)
from backfill_assets.flights.itinerary.steps import ItinerarySteps
from backfill_assets.stores.http_serving import served_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from backfill_assets.flights.itinerary.requests import Journey
    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets.stores.sagas.sagas import Sagas


@dataclass(frozen=True, slots=True)
class Itineraries:
    """The itineraries of a deployment; nothing is opened or connected to yet.

    Args:
        source_url: Gives the address of the database with the flights of 2013.
        log_url: Gives the address of the log's database, where seats and our hotels are kept.
        partner_address: Gives the file that says where the hotel partner listens.
        clock: Gives the present instant, aware.
    """

    source_url: Callable[[], str]
    log_url: Callable[[], str]
    partner_address: Callable[[], Path]
    clock: Callable[[], datetime]

    @property
    def steps(self) -> ItinerarySteps:
        """What the steps do, and what takes them back."""
        return ItinerarySteps(HotelPartner(self._partner_url, self.clock), self.clock)

    def start(self, sagas: Sagas, form: Mapping[str, object], *, who: str) -> Saga:
        """Put on offer what a form asks for, and store the saga that books it; run nothing yet.

        The same form twice is one booking.

        Raises:
            BookingRefusedError: the form is malformed, or there is no such flight.
            KeyReusedError: a booking of that name asked for something else.
            SourceError: the flights database is not reached.
        """
        journey = self._journey(form)
        with psycopg.connect(self.log_url(), autocommit=True) as connection:
            put_on_offer(connection, journey)
        key = journey.request.booking
        return sagas.start(BOOK_ITINERARY.name, key, journey.arguments, who=who)

    def _journey(self, form: Mapping[str, object]) -> Journey:
        given = {name: value for name, value in form.items() if value != ""}
        try:
            request = ItineraryRequest.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            message = f"{'.'.join(map(str, first['loc']))}: {first['msg']}; {first['input']!r}"
            raise BookingRefusedError(message) from None
        return plan_journey(self.source_url(), request)

    def _partner_url(self) -> str:
        url = served_at(self.partner_address())
        if url is None:
            message = (
                f"{NAME} was never started here: `backfill-assets up` starts it, and so does "
                "`backfill-assets serve-hotel-partner`"
            )
            raise RemoteUnreachableError(message)
        return url
