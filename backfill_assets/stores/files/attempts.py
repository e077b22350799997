"""Attempt directories: where files are before anybody sees them, and how a dead one is told.

An attempt is ``.attempts/<name>.<unique>/`` with a lock file that its process holds locked for as
long as it lives. Revoking it takes the directory away in one step, or its lock where nothing can be
renamed, so a process that wakes up late finds that it has no attempt any more: the fence for files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backfill_assets.core.errors import StaleAttemptError
from backfill_assets.stores.files.durability import all_translated, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta
    from pathlib import Path

FOLDER = ".attempts"
_LOCK = "lock"
_BIRTHS = ".births.lock"  # held while an attempt is made, so that no sweep meets a half-made one
_PROOF = ".proof.lock"  # locked twice, to see whether locks work; a sweep holds the other one
_REVOKED = ".revoked-"


def rename_away(directory: Path) -> Path:
    """End an attempt by taking all its files away at once; return where they are now."""
    away = directory.with_name(f"{_REVOKED}{uuid.uuid4().hex}")
    directory.rename(away)
    return away


def remove_lock(directory: Path) -> Path:
    """End an attempt by removing its lock, where nothing can be renamed; see ``is_open``."""
    directory.stat()  # one that is gone has ended by itself
    (directory / _LOCK).unlink(missing_ok=True)
    return directory


def is_open(directory: Path) -> bool:
    """Return whether an attempt was neither ended nor revoked."""
    try:
        with translated("checking"):
            (directory / _LOCK).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def began_ns(directory: Path) -> int:
    """Return when an attempt was opened, by the disk's own clock, in nanoseconds.

    Raises:
        StaleAttemptError: it was revoked.
    """
    try:
        with translated("opening an attempt below"):
            return (directory / _LOCK).stat().st_mtime_ns  # nobody writes to it
    except FileNotFoundError:
        raise stale(directory) from None


class AttemptFolder:
    """The ``.attempts`` folder of a store.

    Args:
        longest_run: Where file locks do not work, an attempt younger than this counts as alive.
        end: Ends an attempt in one step, and returns what is left of it to be removed.
    """

    def __init__(
        self, root: Path, *, longest_run: timedelta, end: Callable[[Path], Path] = rename_away
    ) -> None:
        self.path = root / FOLDER
        self._longest_run = longest_run
        self._end = end

    @contextmanager
    def open(self, name: str) -> Iterator[Path]:
        """Make an attempt's directory, locked until the context or the process ends."""
        with all_translated("opening an attempt below"), self._locked(_BIRTHS, fcntl.LOCK_SH):
            directory = self.path / f"{name}.{uuid.uuid4().hex[:12]}"
            directory.mkdir()
            lock = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)  # a leftover is swept later
            os.close(lock)

    def is_alive(self, name: str) -> bool:
        """Return whether a process holds an attempt whose name begins with ``name``."""
        return any(self._is_held(directory) for directory in self._named(name))

    def revoke(self, name: str) -> int:
        """End every attempt of that name, then remove it; return how many there were."""
        count = 0
        for directory in self._named(name):
            try:
                with translated("revoking"):
                    left = self._end(directory)
            except FileNotFoundError:
                continue  # it ended by itself meanwhile
            shutil.rmtree(left, ignore_errors=True)
            count += 1
        return count

    def sweep(self) -> int:
        """Remove the directories of dead attempts; return how many are gone."""
        if not self.path.is_dir():
            return 0
        count = 0
        with self._locked(_BIRTHS, fcntl.LOCK_EX), translated("sweeping"):
            for directory in sorted(self.path.iterdir()):
                if directory.is_dir() and not self._is_held(directory):
                    shutil.rmtree(directory, ignore_errors=True)
                    count += not directory.exists()  # another user's may have to stay
        return count

    def locks_work(self) -> bool:
        """Return whether a second lock on a locked file is refused, as it should be."""
        with translated("locking"), self._locked(_PROOF, fcntl.LOCK_SH):
            other = os.open(self.path / _PROOF, os.O_RDWR)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(other)
        return False

    def _named(self, name: str) -> list[Path]:
        try:
            paths = [path for path in self.path.iterdir() if path.name.startswith(name)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [path for path in paths if not path.name.startswith(".")]  # our own locks

    def _is_held(self, directory: Path) -> bool:
        try:
            lock = os.open(directory / _LOCK, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False  # its lock is gone: it was revoked, or it is ending
        except OSError:
            return True  # nobody can tell (another user's, no descriptor left): never swept
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return not self.locks_work() and self._is_young(directory)

    def _is_young(self, directory: Path) -> bool:
        """Return whether an attempt is younger than the longest run, by the disk's own clock."""
        births = self.path / _BIRTHS
        try:
            os.utime(births)
            age = births.stat().st_mtime - directory.stat().st_mtime
        except FileNotFoundError:
            return False
        return age < self._longest_run.total_seconds()

    @contextmanager
    def _locked(self, name: str, mode: int) -> Iterator[None]:
        with all_translated("locking"):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, mode)
            yield
        finally:
            os.close(lock)


def stale(directory: Path) -> StaleAttemptError:
    """Return the error of an attempt whose directory is gone."""
    return StaleAttemptError(
        f"attempt {directory.name} was revoked: another run took its work over, and what this one "
        "had not published stays unpublished"
    )
