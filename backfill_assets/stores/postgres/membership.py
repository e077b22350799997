"""Who uses a server, and the keeper that waits for the last of them.

A user is a process that holds the users' lock, shared, until it ends or leaves. A child that it
forks holds it as well: the server stays while either lives, and neither can end the other's use.
"""

import os
import subprocess
import sys
from pathlib import Path

from backfill_assets.stores.postgres import keeper
from backfill_assets.stores.postgres.errors import ServerStartError
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.locks import (
    PROCESS_GUARD,
    is_held,
    is_same_file,
    open_lock_file,
    take_shared,
)

# The keeper holds the lock exclusively while it stops the server.
JOIN_TIMEOUT_SECONDS = keeper.GIVE_UP_SECONDS + 15
KEEPER_START_SECONDS = 20  # 0.03 s, unless the disk is cold

# Of the process, not of an object: all that use one server in one process are one user.
_held: dict[ServerFolder, int] = {}


def join(folder: ServerFolder) -> None:
    """Be a user of the server from now on; does nothing where this process is one already.

    Raises:
        LockTimeoutError: the keeper did not finish stopping the server.
    """
    with PROCESS_GUARD:
        descriptor = _held.get(folder)
        if descriptor is not None and is_same_file(descriptor, folder.users_lock):
            return
        leave(folder)
        _held[folder] = take_shared(folder.users_lock, timeout_seconds=JOIN_TIMEOUT_SECONDS)


def leave(folder: ServerFolder) -> None:
    """Stop being a user. Does nothing to a process that shares the descriptor through a fork."""
    with PROCESS_GUARD:
        descriptor = _held.pop(folder, None)
        if descriptor is not None:
            # Closed, not unlocked: unlocking would end the use of the other holders too.
            os.close(descriptor)


def has_keeper(folder: ServerFolder) -> bool:
    """Return whether a keeper waits for the last user."""
    return is_held(folder.keeper_lock)


def ensure_keeper(folder: ServerFolder) -> None:
    """Start a keeper where there is none; call only as the one that brings the server up.

    Raises:
        ServerStartError: it did not start; without it the server would never stop.
    """
    if has_keeper(folder):
        return
    for lock in (folder.keeper_lock, folder.users_lock, folder.server_lock):
        os.close(open_lock_file(lock))
    with folder.open_log() as log:
        process = subprocess.Popen(  # noqa: S603 - our own module, by its path: any cwd will do
            [sys.executable, "-I", "-S", str(Path(keeper.__file__)), str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    with process:
        said, _ = process.communicate(timeout=KEEPER_START_SECONDS)
    # Or the keeper of one who was killed while starting it was faster than ours.
    if said != keeper.READY and not has_keeper(folder):
        message = (
            f"{folder.path}: the keeper, which stops the server after its last user, did not "
            f"start with {sys.executable}; see the end of {folder.log}"
        )
        raise ServerStartError(message)
