"""File locks by which processes agree without talking; the kernel frees a dead owner's.

Two kinds, on purpose. ``flock`` belongs to the open file: a child that inherits the descriptor
holds it too, which is how users and PostgreSQL's processes are counted. ``lockf`` belongs to the
process: a forked child never holds it, which is right for a short critical section.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backfill_assets.stores.postgres.errors import LockTimeoutError

POLL_SECONDS = 0.01  # a restart takes 0.15 s; waiting in larger steps would show


class _ProcessGuard:
    """One thread at a time in this process; a forked child starts with a free one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._short_lived: set[int] = set()
        os.register_at_fork(after_in_child=self._reset_in_child)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextmanager
    def open(self, path: Path) -> Iterator[int]:
        """Open a lock file whose descriptor a child forked meanwhile does not keep."""
        descriptor = open_lock_file(path)
        self._short_lived.add(descriptor)
        try:
            yield descriptor
        finally:
            self._short_lived.discard(descriptor)
            os.close(descriptor)

    def _reset_in_child(self) -> None:
        self._lock = threading.RLock()
        for descriptor in self._short_lived:
            os.close(descriptor)
        self._short_lived.clear()


PROCESS_GUARD = _ProcessGuard()


def open_lock_file(path: Path) -> int:
    """Return a descriptor of the lock file, which is made if absent and never inherited by exec."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_held(path: Path) -> bool:
    """Return whether some process holds the ``flock`` of ``path`` exclusively."""
    with PROCESS_GUARD.open(path) as descriptor:
        return not _try_flock(descriptor, fcntl.LOCK_SH)


def is_same_file(descriptor: int, path: Path) -> bool:
    """Return whether ``path`` still names the open file; it does not once it was deleted."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def take_shared(path: Path, *, timeout_seconds: float) -> int:
    """Take the lock shared, for as long as the returned descriptor stays open anywhere.

    Raises:
        LockTimeoutError: it was held exclusively all the time.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        descriptor = open_lock_file(path)
        if _try_flock(descriptor, fcntl.LOCK_SH) and is_same_file(descriptor, path):
            return descriptor
        os.close(descriptor)
        _wait_or_give_up(path, deadline, timeout_seconds)


@contextmanager
def heritable(path: Path, *, timeout_seconds: float) -> Iterator[int]:
    """Hold the lock exclusively, in this process and in every child given the descriptor.

    Leaving the context closes our descriptor only: the children's go on holding the lock.

    Raises:
        LockTimeoutError: it was held all the time.
    """
    deadline = time.monotonic() + timeout_seconds
    with PROCESS_GUARD.open(path) as descriptor:
        while not _try_flock(descriptor, fcntl.LOCK_EX):
            _wait_or_give_up(path, deadline, timeout_seconds)
        yield descriptor


@contextmanager
def critical_section(path: Path, *, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock in this process alone. Enter `PROCESS_GUARD` first: it knows no threads.

    Raises:
        LockTimeoutError: it was held all the time.
    """
    deadline = time.monotonic() + timeout_seconds
    with PROCESS_GUARD.open(path) as descriptor:
        while True:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):  # POSIX allows either for "held"
                _wait_or_give_up(path, deadline, timeout_seconds)
        yield


def _try_flock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_or_give_up(path: Path, deadline: float, timeout_seconds: float) -> None:
    if time.monotonic() > deadline:
        message = (
            f"{path}: another process has held this lock for {timeout_seconds:g} s; "
            f"find it with `fuser -v {path}` (or `lsof {path}`), end it, and try again"
        )
        raise LockTimeoutError(message)
    time.sleep(POLL_SECONDS)
