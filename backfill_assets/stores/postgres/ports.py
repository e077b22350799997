"""Which TCP port a server gets. Loopback only."""

import socket
from collections.abc import Iterator

from backfill_assets.stores.postgres.folder import ServerFolder

HOST = "127.0.0.1"
NEW_PORTS_TRIED = 5  # each is lost only to a program that binds within milliseconds


def ports_to_try(folder: ServerFolder) -> Iterator[int]:
    """Yield the port of the last start where it is free, so that clients reconnect; then others."""
    previous = _previous_port(folder)
    if previous is not None and is_free(previous):
        yield previous
    for _ in range(NEW_PORTS_TRIED):
        yield free_port()


def remember_port(folder: ServerFolder, port: int) -> None:
    """Keep the port for the next start. A crash may lose it, which costs nothing."""
    folder.port.write_text(f"{port}\n", encoding="ascii")


def is_free(port: int) -> bool:
    """Return whether the port could be listened at just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As PostgreSQL does: connections of the last server that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def free_port() -> int:
    """Return a port that is free just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _previous_port(folder: ServerFolder) -> int | None:
    try:
        text = folder.port.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None
