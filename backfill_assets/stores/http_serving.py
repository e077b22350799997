"""Serving an application on this machine, and finding where it is served: a file says so."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.applications import Starlette

HOST = "127.0.0.1"
END_SECONDS = 10  # requests in hand get this long to end when it is stopped


def serve(app: Starlette, port: int, address: Path) -> None:
    """Answer until a signal ends it.

    Args:
        port: Where to listen, on the loopback interface; 0 chooses a free one.
        address: The file in which the server's address is put, anew at each start.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        write_address(address, f"http://{HOST}:{listening.getsockname()[1]}")
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=END_SECONDS, lifespan="off"
        )
        uvicorn.Server(config).run(sockets=[listening])


def served_at(address: Path) -> str | None:
    """Return where a server listens, as it said at its last start; it may have ended since.

    None: it was never started here.
    """
    try:
        return str(json.loads(address.read_text())["url"])
    except (OSError, ValueError, KeyError):
        return None


def write_address(address: Path, url: str) -> None:
    """Say where a server listens; a reader sees the old address or the new one."""
    address.parent.mkdir(parents=True, exist_ok=True)
    draft = address.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"url": url}))
    draft.replace(address)
