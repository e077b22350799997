"""The hotel partner as a process of its own, behind a wire on which requests and replies get lost.

The wire is a proxy that a test gives orders to, one for each request that is to come. A request
that is not ordered about goes through.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import deque
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

import httpx
import uvicorn

from backfill_assets.flights.itinerary.partner_server import make_app
from backfill_assets_tests.stores.children import child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from backfill_assets_tests.stores.children import Child

HOST = "127.0.0.1"


class Wire(StrEnum):
    """What becomes of one request."""

    LOSES_REQUEST = "loses request"  # it never arrives, and the line is cut
    LOSES_REPLY = "loses reply"  # it is done, and the line is cut
    KEEPS_REQUEST = "keeps request"  # the line is cut, and it arrives when the test says so
    SENDS_TWICE = "sends twice"  # at the same time
    IS_BROKEN = "is broken"  # the partner answers with an error of its own


class Partner:
    """A running partner, and orders for the wire to it."""

    def __init__(self, process: Child, port: int, own_port: int) -> None:
        self.process = process
        self.url = f"http://{HOST}:{port}"
        self._own_url = f"http://{HOST}:{own_port}"

    def order(self, *faults: Wire) -> None:
        """Say what becomes of the next POSTs."""
        self._control("orders", list(faults))

    def deliver(self) -> list[int]:
        """Let what was kept arrive; return the answers' statuses."""
        found: list[int] = self._control("deliver", None)
        return found

    def _control(self, what: str, body: object) -> list[int]:
        answer = httpx.post(f"{self.url}/wire/{what}", json=body, trust_env=False)
        found: list[int] = answer.raise_for_status().json()
        return found


@contextmanager
def running_partner(database: str, clock: Callable[[], datetime]) -> Iterator[Partner]:
    """Run a partner; it is dead at the end of the block."""
    with socket.socket() as wire, socket.socket() as own:
        for one in (wire, own):
            one.bind((HOST, 0))
            one.listen(100)  # from now on a request waits until it is answered
        ports = wire.getsockname()[1], own.getsockname()[1]

        def serve() -> None:
            asyncio.run(_serve(wire, own, ports[1], database, clock))

        with child(serve) as process:
            for one in (wire, own):
                one.close()  # they are the partner's alone: once it is killed nothing listens
            yield Partner(process, *ports)


async def _serve(
    wire: socket.socket,
    own: socket.socket,
    port: int,
    database: str,
    clock: Callable[[], datetime],
) -> None:
    app = make_app(lambda: database, clock)
    config = uvicorn.Config(app, log_level="error", lifespan="off")
    proxy = _Proxy(port)
    await asyncio.start_server(proxy.answer, sock=wire)
    await uvicorn.Server(config).serve(sockets=[own])


class _Proxy:
    def __init__(self, port: int) -> None:
        self._port = port
        self._orders: deque[str] = deque()
        self._kept: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head, body = await _read_request(reader)
            if head.startswith(b"POST /wire/"):
                found = await self._controlled(head, body)
                writer.write(_answer(200, json.dumps(found)))
            else:
                is_post = head.startswith(b"POST")
                order = self._orders.popleft() if is_post and self._orders else None
                writer.write(await self._passed(head + body, order))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            sys.stderr.write(f"wire: {error}\n")
        finally:
            writer.close()

    async def _controlled(self, head: bytes, body: bytes) -> list[int]:
        if b"/wire/orders" in head:
            self._orders = deque(json.loads(body))
            return []
        kept, self._kept = self._kept, []
        return [_status(await self._forward(one)) for one in kept]

    async def _passed(self, request: bytes, order: str | None) -> bytes:
        if order == Wire.LOSES_REQUEST:
            return b""
        if order == Wire.KEEPS_REQUEST:
            self._kept.append(request)
            return b""
        if order == Wire.IS_BROKEN:
            return _answer(500, '"broken"')
        if order == Wire.SENDS_TWICE:
            answers = await asyncio.gather(self._forward(request), self._forward(request))
            return min(answers, key=_status)
        answer = await self._forward(request)
        return b"" if order == Wire.LOSES_REPLY else answer

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, self._port)
        closing = request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        writer.write(closing)
        answer = await reader.read()
        writer.close()
        return answer


async def _read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    lengths = [line.partition(b":")[2] for line in lines if line.lower().startswith(b"content-len")]
    body = await reader.readexactly(int(lengths[0])) if lengths else b""
    return b"\r\n".join(lines), body


def _answer(status: int, body: str) -> bytes:
    content = body.encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return head.encode() + content


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0
