"""A proxy before PostgreSQL that cuts a connection at one of its requests.

A request is what a client sends until it waits for an answer. Cut before it, the server never gets
it; cut after it, the server has done it, and its answer is lost.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from backfill_assets.stores.sql import load_statements
from backfill_assets_tests.stores.children import child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_NAMED = load_statements("backfill_assets.stores.log", "statements.sql")
_PARAMETER = re.compile(r"%\(\w+\)s|\$\d+")


class Cut(Enum):
    """When a connection ends."""

    BEFORE = "before"
    AFTER = "after"


@dataclass
class Fault:
    """What is to happen, and what did.

    Attributes:
        number: Of the request, counted from the arming on, from 0.
        crashes: The server process behind the connection is killed as well, by which the whole
            server restarts.
        met: The name or text of the request that was cut, or None.
    """

    number: int
    cut: Cut
    crashes: bool = False
    met: str | None = None


class CuttingProxy:
    """Listens, and passes everything on, but for what is armed."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        login = parts.netloc.rpartition("@")[0]
        options = "sslmode=disable&gssencmode=disable"
        self.url = f"postgresql://{login}@127.0.0.1:{port}{parts.path}?{options}"
        self.requests: list[str] = []
        self.fault: Fault | None = None
        self._connections: list[_Connection] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> CuttingProxy:
        self._acceptor.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # where it has ended before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        for connection in self._connections:
            connection.end()

    def arm(self, fault: Fault | None) -> None:
        """Cut the request that the fault names, from now on; forget what was before."""
        self.requests.clear()
        self.fault = fault

    def counted(self, text: str) -> Fault | None:
        """Count a request; return the fault where it is the one to be cut."""
        name = name_of(text)
        self.requests.append(name)
        fault = self.fault
        if fault is None or fault.met is not None or len(self.requests) - 1 != fault.number:
            return None
        fault.met = name
        return fault

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:  # it is restarting
                client.close()
                continue
            self._connections.append(_Connection(self, client, server))


class _Connection:
    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        for side in (client, server):  # or each small message waits for the answer to the last
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._backend = 0
        self._lost: Fault | None = None  # whose answer is not to be passed on
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._upwards, self._downwards)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._close()
        for thread in self._threads:
            thread.join()
        self._client.close()
        self._server.close()

    def _close(self) -> None:
        for side in (self._client, self._server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def _upwards(self) -> None:
        try:
            (length,) = struct.unpack("!I", _exactly(self._client, 4))
            self._server.sendall(struct.pack("!I", length) + _exactly(self._client, length - 4))
            held, texts = b"", ""
            for kind, message in _messages(self._client):
                held += message
                if kind in b"PQ":
                    texts += message[5:].decode(errors="replace")
                if kind not in b"QSpX":
                    continue
                if kind in b"QS" and (fault := self._proxy.counted(texts)) is not None:
                    if fault.cut is Cut.BEFORE:
                        self._cut(fault)
                        return
                    self._lost = fault
                self._server.sendall(held)
                held, texts = b"", ""
        except (OSError, EOFError):
            pass
        finally:
            if self._lost is None:
                self._close()

    def _downwards(self) -> None:
        try:
            for kind, message in _messages(self._server):
                if kind == b"K":
                    (self._backend,) = struct.unpack("!I", message[5:9])
                if self._lost is None:
                    self._client.sendall(message)
                elif kind == b"Z":
                    self._cut(self._lost)
        except (OSError, EOFError):
            pass
        finally:
            self._close()

    def _cut(self, fault: Fault) -> None:
        if fault.crashes:
            os.kill(self._backend, signal.SIGKILL)
        self._close()


@contextmanager
def starting_server() -> Iterator[str]:
    """Yield the URL of a server that is starting, and lets nobody in yet.

    It is a process: libpq lets no other thread of ours work while it asks a server how it is.
    """
    fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
    answer = b"E" + struct.pack("!I", len(fields) + 4) + fields

    def refuse() -> None:
        while True:
            client, _ = listener.accept()
            with client, suppress(OSError, EOFError):
                (length,) = struct.unpack("!I", _exactly(client, 4))
                _exactly(client, length - 4)
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener, child(refuse):
        yield f"postgresql://nobody@127.0.0.1:{listener.getsockname()[1]}/x?sslmode=disable"


def name_of(text: str) -> str:
    """Return the name of the log's statement in a request, or its beginning."""
    plain = _PARAMETER.sub("?", text)
    for name in _NAMED:
        if _PARAMETER.sub("?", _NAMED[name]) in plain:
            return name
    return " ".join(text.strip("\0").split()[:2])


def _messages(source: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    while True:
        head = _exactly(source, 5)
        (length,) = struct.unpack("!I", head[1:])
        yield head[:1], head + _exactly(source, length - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        part = source.recv(count - len(content))
        if not part:
            raise EOFError
        content += part
    return content
