"""A web application that answers in a thread of the test."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

STARTED_SECONDS = 20


@contextmanager
def served(app: Starlette) -> Iterator[tuple[str, int]]:
    """Serve on a free port, and yield host and port; all requests have ended afterwards."""
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", ws="none")
    server = _Announced(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.announced.wait(STARTED_SECONDS), "the server did not start"
        host, port = server.servers[0].sockets[0].getsockname()
        yield host, port
    finally:
        server.should_exit = True
        thread.join()


class _Announced(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.announced = threading.Event()

    async def startup(self, sockets: list[object] | None = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        self.announced.set()
