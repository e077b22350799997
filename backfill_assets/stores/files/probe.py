"""A store proves on its own file system that its commit protocol holds there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from backfill_assets.core.errors import StoreUnsupportedError
from backfill_assets.stores.files.durability import translated

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.stores.files.attempts import AttemptFolder


def prove_links_and_renames(root: Path, attempts: AttemptFolder) -> None:
    """Check that a link fails when the name is taken, that a rename replaces, and on one device.

    Raises:
        StoreUnsupportedError: publishing here would not be atomic.
        StoreUnreadableError: the root cannot be written.
    """
    with translated("opening an attempt below"), attempts.open("probe") as folder:
        if folder.stat().st_dev != root.stat().st_dev:
            raise _unsupported(root, "its .attempts folder is on another device")
        first, second, name = folder / "first", folder / "second", folder / "name"
        first.write_bytes(b"first")
        second.write_bytes(b"second")
        try:
            _check_link(root, first, second, name)
            _check_rename(root, second, name)
        except OSError as error:
            raise _unsupported(root, f"{error.strerror}") from error


def prove_markers(root: Path, attempts: AttemptFolder) -> None:
    """Check that a name is created once only, is listed at once, reads whole, and can be removed.

    Raises:
        StoreUnsupportedError: a marker here would not commit for sure.
        StoreUnreadableError: the root cannot be written.
    """
    with translated("opening an attempt below"), attempts.open("probe") as folder:
        name = folder / "name"
        try:
            _check_creation(root, name)
            name.unlink()
        except OSError as error:
            raise _uncertain(root, f"{error.strerror}") from error
        if name.exists() or name in folder.iterdir():
            raise _uncertain(root, "a removed file stays")


def _check_creation(root: Path, name: Path) -> None:
    _create(name, b"first")
    if name.read_bytes() != b"first" or name not in name.parent.iterdir():
        raise _uncertain(root, "a written file is not found at once")
    try:
        _create(name, b"second")
    except FileExistsError:
        return
    raise _uncertain(root, "a file that exists is created again")


def _create(name: Path, content: bytes) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _check_link(root: Path, first: Path, second: Path, name: Path) -> None:
    os.link(first, name)
    if not name.samefile(first) or name.read_bytes() != b"first":
        raise _unsupported(root, "a hard link makes a copy")
    try:
        os.link(second, name)
    except FileExistsError:
        return
    raise _unsupported(root, "a link replaces the file whose name it takes")


def _check_rename(root: Path, second: Path, name: Path) -> None:
    inode = second.stat().st_ino
    second.replace(name)
    if name.stat().st_ino != inode or name.read_bytes() != b"second":
        raise _unsupported(root, "a rename makes a copy")


def _unsupported(root: Path, found: str) -> StoreUnsupportedError:
    return StoreUnsupportedError(
        f"{root}: {found}, so a partition could be seen half-written; nothing was written. Choose "
        "a folder on a local file system for BACKFILL_STORE, or begin the store with "
        "BACKFILL_COMMIT_PROTOCOL=marker, which needs neither links nor renames"
    )


def _uncertain(root: Path, found: str) -> StoreUnsupportedError:
    return StoreUnsupportedError(
        f"{root}: {found}, so two runs could commit one partition; nothing was written. Choose "
        "a folder on a local file system for BACKFILL_STORE"
    )
