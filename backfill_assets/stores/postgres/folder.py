"""Where an embedded server keeps what it needs: one folder, and the names in it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from backfill_assets.stores.postgres.errors import FolderError

MAKING_PREFIX = "making-"
# PostgreSQL cuts paths off after 1,023 bytes, and would then work in other folders than named. The
# longest of those that it builds upon ours, while a cluster is made, has 44 bytes more.
MAX_PATH_BYTES = 900


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """The folder of one embedded server.

    Attributes:
        path: Absolute and without symbolic links, so that every process names it alike.
    """

    path: Path

    @property
    def data(self) -> Path:
        """The cluster. It appears under this name only when it is whole."""
        return self.path / "data"

    @property
    def password(self) -> Path:
        """The password of the server's only role; inside the cluster, so they never part."""
        return self.data / "backfill_password"

    @property
    def postmaster_pid(self) -> Path:
        """PostgreSQL's own lock file."""
        return self.data / "postmaster.pid"

    @property
    def log(self) -> Path:
        """What the server and its keeper say; the keeper bounds its size."""
        return self.path / "server.log"

    @property
    def port(self) -> Path:
        """The port of the last start, tried first at the next."""
        return self.path / "port"

    @property
    def users_lock(self) -> Path:
        """Held shared by every process that uses the server."""
        return self.path / "users.lock"

    @property
    def keeper_lock(self) -> Path:
        """Held by the keeper for its life."""
        return self.path / "keeper.lock"

    @property
    def start_lock(self) -> Path:
        """Held by the one process that is bringing the server up."""
        return self.path / "start.lock"

    @property
    def server_lock(self) -> Path:
        """Held by PostgreSQL's own processes, which inherit it: free means that none is left."""
        return self.path / "server.lock"

    def open_log(self) -> BinaryIO:
        """Open the log so that every writer appends, also after it was emptied."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.fdopen(os.open(self.log, flags, 0o600), "ab", buffering=0)

    def leftovers(self) -> list[Path]:
        """Return the folders in which a cluster was, or is, being made."""
        return sorted(self.path.glob(f"{MAKING_PREFIX}*"))


def check_depth(folder: ServerFolder) -> None:
    """Refuse a folder whose path is too long for PostgreSQL.

    Raises:
        FolderError: it is; nothing was made in it.
    """
    length = len(os.fsencode(folder.path))
    if length > MAX_PATH_BYTES:
        message = (
            f"{folder.path}: this path has {length} bytes, and PostgreSQL has room for "
            f"{MAX_PATH_BYTES}; name a folder that is not so deep"
        )
        raise FolderError(message)


def flush_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
