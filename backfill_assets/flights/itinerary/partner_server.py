"""The hotel partner: a business of its own, with books of its own, that is spoken to over HTTP.

    POST /v1/bookings       {"booking": …, "stay": {…}}                            → the stay
    POST /v1/cancellations  {"booking": …, "by": …, "wrote": {…}, "is_known": …}   → fee and refund
    GET  /v1/bookings?booking=…                     → as it stands
    GET  /v1/free?city=…&first_night=…&nights=…     → free rooms
    GET  /health                                    → {"status": "ok"}

The POSTs are done once for each ``Idempotency-Key``. In a real business this is somebody else's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

from backfill_assets.core.errors import BookingRefusedError, ConflictError, NothingFreeError
from backfill_assets.flights.itinerary import hotels
from backfill_assets.flights.itinerary.bookings import Stay, facts
from backfill_assets.stores.http_replies import Reply, StoredReplies
from backfill_assets.stores.idempotent_http import idempotent, problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

    from backfill_assets.core.operations import Json

SERVICE = "hotel partner"


def make_app(url: Callable[[], str], clock: Callable[[], datetime]) -> Starlette:
    """Return the server as an ASGI application.

    Args:
        url: Gives the address of the partner's own database.
        clock: Gives the present instant, aware.
    """
    partner = _Partner(url, clock)
    replies = StoredReplies(url, SERVICE)
    return Starlette(
        routes=[
            Route("/v1/bookings", idempotent(replies, partner.book), methods=["POST"]),
            Route("/v1/cancellations", idempotent(replies, partner.cancel), methods=["POST"]),
            Route("/v1/bookings", partner.booked),
            Route("/v1/free", partner.free),
            Route("/health", _health),
        ]
    )


@dataclass(slots=True)
class _Partner:
    url: Callable[[], str]
    clock: Callable[[], datetime]
    has_tables: bool = False

    def book(self, connection: psycopg.Connection, body: Json) -> Reply:
        asked: Any = body
        self._make_tables()
        try:
            booking, stay = str(asked["booking"]), Stay.of(asked["stay"])
            hotels.open_hotels(connection, stay.city, hotels.PARTNERS)
            return Reply(200, hotels.book(connection, booking, stay, self.clock()))
        except NothingFreeError as error:
            return problem(404, "Nothing is free", str(error))
        except BookingRefusedError as error:
            return problem(403, "It cannot be booked", str(error))
        except (TypeError, KeyError):
            return problem(400, "Malformed request", 'expected {"booking": …, "stay": {…}}')

    def cancel(self, connection: psycopg.Connection, body: Json) -> Reply:
        asked: Any = body
        self._make_tables()
        try:
            given = {name: asked[name] for name in ("booking", "wrote", "by", "is_known")}
            return Reply(200, hotels.cancel(connection, now=self.clock(), **given))
        except ConflictError as error:
            return problem(412, "It is not as it was booked", str(error))
        except (TypeError, KeyError):
            detail = 'expected {"booking": …, "by": …, "wrote": {…}, "is_known": …}'
            return problem(400, "Malformed request", detail)

    async def booked(self, request: Request) -> Response:
        booking = request.query_params.get("booking", "")
        row = await run_in_threadpool(self._read, lambda c: hotels.find(c, booking))
        return JSONResponse(None if row is None else facts(row))

    async def free(self, request: Request) -> Response:
        try:
            # Nobody needs to say who asks, or when it is for them.
            stay = Stay.of({"hotel": "", "traveller": "?", "as_if": 0, **request.query_params})
        except BookingRefusedError as error:
            return JSONResponse({"title": "Malformed request", "detail": str(error)}, 400)

        def read(connection: psycopg.Connection) -> list[hotels.FreeRooms]:
            hotels.open_hotels(connection, stay.city, hotels.PARTNERS)
            return hotels.free_rooms(connection, stay)

        return JSONResponse([asdict(one) for one in await run_in_threadpool(self._read, read)])

    def _read(self, read: Callable[[psycopg.Connection], Any]) -> Any:
        self._make_tables()
        with psycopg.connect(self.url()) as connection:
            return read(connection)

    def _make_tables(self) -> None:
        """Make the books at the first request; in a transaction that no refusal takes back."""
        if not self.has_tables:
            with psycopg.connect(self.url(), autocommit=True) as connection:
                hotels.make_tables(connection)
            self.has_tables = True


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})
