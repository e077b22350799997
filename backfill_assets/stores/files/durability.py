"""Making files durable together, and naming what a full disk or a lost device means."""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backfill_assets.core.errors import StoreFullError, StoreUnreadableError, StoreUnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def _load_syncfs() -> Callable[[int], int] | None:
    """Return Linux's ``syncfs``, which flushes one file system, or None where there is none."""
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return found


_SYNCFS = _load_syncfs()


class Flusher:
    """Makes everything written on one file system durable.

    Where the system has ``syncfs``, a flush is one call for the whole group, files and directories
    alike: 0.6 ms a file instead of 8.7 ms with an ``fsync`` each. Its descriptor is opened before
    the first write, so that an error of the device in between is reported, not lost.
    """

    def __init__(self, directory: str, *, together: bool = _SYNCFS is not None) -> None:
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self._together = together

    def flush(self, paths: Iterable[str]) -> None:
        """Make the given files or directories durable.

        Raises:
            StoreFullError: the device had no room for what was written.
            StoreUnreadableError: the device failed.
        """
        with translated("flushing"):
            if self._together and _SYNCFS is not None:
                _call_syncfs(self._descriptor)
                return
            for path in paths:
                _fsync(path)

    def close(self) -> None:
        """Let go of the file system."""
        os.close(self._descriptor)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Translate errors of the operating system into the store's own; the others pass."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError):
        raise  # each caller knows what these mean to it
    except OSError as error:
        raise _translation(doing, error) from error


@contextmanager
def all_translated(doing: str) -> Iterator[None]:
    """Translate every error of the operating system, where no name means anything special."""
    try:
        with translated(doing):
            yield
    except FileNotFoundError as error:
        raise StoreUnreadableError(
            f"{doing} {_place(error)}: it is gone, or a link that leads nowhere; nothing was "
            "counted as missing. Try again, or see where the link leads"
        ) from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise StoreUnreadableError(
            f"{doing} {_place(error)}: something that is not ours has this name or one above it. "
            "It was left alone; move it away, and try again"
        ) from error


def _place(error: OSError) -> str:
    return str(error.filename2 or error.filename or "in the store")  # of a link: its new name


def _translation(doing: str, error: OSError) -> Exception:
    place = _place(error)
    if error.errno in _NO_ROOM:
        return StoreFullError(
            f"{doing} {place}: {error.strerror}; what is visible is whole, the rest stays missing. "
            "Make room, and the next tick goes on"
        )
    if error.errno == errno.EXDEV:
        return StoreUnsupportedError(
            f"{doing} {place}: it is on another device than the store's .attempts folder, and a "
            "copy would not be atomic; keep the whole store on one file system"
        )
    return StoreUnreadableError(
        f"{doing} {place}: {error.strerror}; nothing was counted as missing. Check its owner, its "
        "permissions and its device"
    )


def _call_syncfs(descriptor: int) -> None:
    if _SYNCFS is not None and _SYNCFS(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
