"""A proxy between pipeline and model server that does to requests what networks do.

Which request meets which fault is a list: the test draws it from a seed, so that a run that failed
is repeated by its number.
"""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HELD_SECONDS = 30  # a test that forgets to release what it holds fails, and does not hang


class Fault(StrEnum):
    """What happens to one request and its reply."""

    NONE = "passes"
    LATE_REQUEST = "the request arrives after the release"
    LATE_REPLY = "the request arrives, and its reply comes after the release"
    DUPLICATE = "the request arrives twice, and the second reply comes back"
    LOST_REPLY = "the request arrives, and no reply comes back"
    CUT_REPLY = "the request arrives, and half of the reply comes back"
    LOST_REQUEST = "the connection is cut before the request arrives"


HELD = frozenset({Fault.LATE_REQUEST, Fault.LATE_REPLY})
BROKEN = frozenset({Fault.LOST_REPLY, Fault.CUT_REPLY, Fault.LOST_REQUEST})


class Seen(NamedTuple):
    """One request that came to the proxy."""

    path: str
    key: str
    fault: Fault


@dataclass
class FaultProxy:
    """Passes requests on, each with the next fault of the list; after its end, with none.

    Attributes:
        seen: Every request that came, in order, with the fault that it met.
        arrived: Is set when a held request has come as far as it goes before the release.
        released: Lets held requests and replies go on.
    """

    upstream: tuple[str, int]
    faults: Sequence[Fault] = ()
    seen: list[Seen] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator[FaultProxy]:
        """Listen, and answer each connection in a thread of its own."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = False
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            server.shutdown()
            thread.join()
            server.server_close()

    def next_fault(self, path: str, key: str) -> Fault:
        """Write a request down, and return what happens to it."""
        with self._lock:
            number = len(self.seen)
            fault = self.faults[number] if number < len(self.faults) else Fault.NONE
            self.seen.append(Seen(path, key, fault))
        return fault

    def hold(self) -> None:
        """Wait for the release."""
        self.arrived.set()
        assert self.released.wait(HELD_SECONDS), "nobody released what the proxy holds"

    def forward(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        """Send a request to the server; return status, content type and body."""
        connection = http.client.HTTPConnection(*self.upstream, timeout=HELD_SECONDS)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read()
        finally:
            connection.close()

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                key = self.headers["Idempotency-Key"]
                headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
                fault = proxy.next_fault(self.path, key)
                self.close_connection = True
                if fault is Fault.LOST_REQUEST:
                    return
                if fault is Fault.LATE_REQUEST:
                    proxy.hold()
                answer = proxy.forward(self.path, headers, body)
                if fault is Fault.DUPLICATE:
                    answer = proxy.forward(self.path, headers, body)
                if fault is Fault.LATE_REPLY:
                    proxy.hold()
                if fault is not Fault.LOST_REPLY:
                    self._reply(*answer, is_cut=fault is Fault.CUT_REPLY)

            def _reply(self, status: int, kind: str, content: bytes, *, is_cut: bool) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if is_cut else content)

            def log_message(self, *_: object) -> None:
                """Say nothing: what came is in `seen`."""

        return Handler
