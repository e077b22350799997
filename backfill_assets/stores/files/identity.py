"""The root proves itself: ``.backfill-store.json`` names format, protocol and time zones.

A root that has lost its identity is an error, not a million missing partitions. Where nothing can
be renamed over it, a later identity is ``.backfill-store.2.json`` and so on: the highest whole one
counts, and JSON that was cut short is never whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

from backfill_assets.core.errors import StoreUnreadableError, StoreUnsupportedError
from backfill_assets.stores.files.attempts import FOLDER
from backfill_assets.stores.files.durability import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.stores.files.attempts import AttemptFolder

NAME = ".backfill-store.json"
FORMAT_VERSION = 1  # of the layout and of the commit record
_IDENTITY = re.compile(r"\.backfill-store(?:\.([2-9]|[1-9][0-9]+))?\.json")


class _DamagedError(StoreUnreadableError):
    """What stands there is no whole identity."""


class Placing(Protocol):
    """How a commit protocol puts an identity in place."""

    def __call__(self, folder: Path, root: Path, text: bytes, *, replace: bool) -> None:
        """Put it in place; without ``replace``, a whole one that stands there wins.

        Args:
            folder: An attempt's directory, for drafts.
        """


@dataclass(frozen=True, slots=True)
class Identity:
    """What a root says about itself.

    Attributes:
        format_version: Of the layout and the commit record.
        commit_protocol: How a file becomes visible: ``link`` or ``marker``.
        file_format: ``parquet`` or ``json``.
        zones: The time zone of each catalogue, by name.
    """

    format_version: int
    commit_protocol: str
    file_format: str
    zones: dict[str, str]

    def __post_init__(self) -> None:
        if not isinstance(self.zones, dict):
            raise TypeError("its 'zones' are no object")

    @classmethod
    def of(cls, catalogues: Sequence[Catalogue], file_format: str, protocol: str) -> Identity:
        """Return the identity that a store of these catalogues has."""
        zones = {catalogue.name: catalogue.closing.zone.key for catalogue in catalogues}
        return cls(FORMAT_VERSION, protocol, file_format, zones)


def is_name(name: str) -> bool:
    """Return whether an identity may be called so."""
    return _IDENTITY.fullmatch(name) is not None


def read(root: Path) -> Identity | None:
    """Return the identity of a root, or None where it has none.

    Raises:
        StoreUnreadableError: it cannot be read.
        StoreUnsupportedError: another version of the format owns the root.
    """
    try:
        found = _read_one(root / NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except _DamagedError:
        later = next(_later(root), None)
        if later is None and _strange(root):
            raise
        return later  # None: whoever began the store died while writing, and nothing is in it
    return found if found.commit_protocol == "link" else next(_later(root), found)


def establish(root: Path, attempts: AttemptFolder, wanted: Identity, place: Placing) -> None:
    """Write the identity of a new root, or check that of an old one and add new catalogues.

    Concurrent callers agree; a crash leaves the old identity or the new one.

    Args:
        place: How the commit protocol puts an identity in place.

    Raises:
        StoreUnsupportedError: the root was made with other settings.
    """
    found = read(root)
    if found is None:
        _write(root, attempts, wanted, place, replace=False)
        found = read(root)
    if found is None:
        message = f"{root / NAME} is not a store's identity, and the store is empty; remove it"
        raise StoreUnreadableError(message)
    check(root, found, wanted)
    if not wanted.zones.items() <= found.zones.items():
        added = dataclasses.replace(found, zones=found.zones | wanted.zones)
        _write(root, attempts, added, place, replace=True)


def check(root: Path, found: Identity, wanted: Identity) -> None:
    """Refuse a root that was made with other settings, naming the difference.

    Raises:
        StoreUnsupportedError: protocol, file format or a zone differs.
    """
    for name in ("commit_protocol", "file_format"):
        if getattr(found, name) != getattr(wanted, name):
            message = (
                f"{root}: {name} is {getattr(found, name)!r}, and {getattr(wanted, name)!r} is "
                "asked for; use the former, or begin another store"
            )
            raise StoreUnsupportedError(message)
    for catalogue, zone in wanted.zones.items():
        before = found.zones.get(catalogue, zone)
        if before != zone:
            message = (
                f"{root}: the days of {catalogue} were cut in {before}, and the catalogue now says "
                f"{zone}: every file would keep its name and change its meaning. Keep the zone, or "
                "rename the catalogue"
            )
            raise StoreUnsupportedError(message)


def refuse_foreign(root: Path) -> None:
    """Refuse a root that holds things and no identity; one that is not there yet is fine.

    Raises:
        StoreUnreadableError: it is no store, or it lost its identity.
    """
    if read(root) is not None:
        return
    if root.is_symlink() and not root.exists():
        message = (
            f"{root} is a link to {root.readlink()}, and nothing is there: mount it, or make it"
        )
        raise StoreUnreadableError(message)
    try:
        with translated("reading"):
            strange = sorted(_strange(root))
    except FileNotFoundError:
        return
    except NotADirectoryError:
        message = f"{root} is a file; a store needs a folder of its own"
        raise StoreUnreadableError(message) from None
    if strange:
        message = (
            f"{root} has no {NAME} but holds {strange[0]!r}: it is no store, or it lost its "
            "identity. Give an empty folder, or restore the identity from a backup"
        )
        raise StoreUnreadableError(message)


def place_by_link(folder: Path, root: Path, text: bytes, *, replace: bool) -> None:
    """Put an identity in place in one step; an existing one wins unless replaced."""
    draft = folder / NAME
    _write_new(draft, text)
    if replace:
        draft.replace(root / NAME)
        return
    # Somebody else may make the store in the same moment: the first one wins.
    with contextlib.suppress(FileExistsError):
        (root / NAME).hardlink_to(draft)


def place_by_number(folder: Path, root: Path, text: bytes, *, replace: bool) -> None:  # noqa: ARG001 - a Placing
    """Put an identity in place under a number above all others: the highest whole one counts.

    Two processes that begin one store at once both write the same, or the next look refuses one.
    """
    for number in itertools.count(max(_numbers(root).values(), default=0) + 1):
        try:
            _write_new(root / _numbered(number), text)
        except FileExistsError:
            if replace or read(root) is None:
                continue  # another process took the number in this moment
        return


def _write(
    root: Path, attempts: AttemptFolder, identity: Identity, place: Placing, *, replace: bool
) -> None:
    """Put the identity in place, durably."""
    text = json.dumps(asdict(identity), indent=2, sort_keys=True).encode()
    with translated("preparing"), attempts.open("identity") as folder:
        place(folder, root, text, replace=replace)
        descriptor = os.open(root, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _write_new(path: Path, text: bytes) -> None:
    with path.open("xb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _read_one(path: Path) -> Identity:
    try:
        with translated("reading"):
            document = json.loads(path.read_bytes())
        if document["format_version"] != FORMAT_VERSION:
            message = (
                f"{path}: format version {document['format_version']}, and this version of "
                f"backfill_assets reads {FORMAT_VERSION}; use the version that made the store"
            )
            raise StoreUnsupportedError(message)
        return Identity(**document)
    except (ValueError, KeyError, TypeError, IsADirectoryError) as error:
        message = f"{path} is not a store's identity ({error}); restore it from a backup"
        raise _DamagedError(message) from error


def _later(root: Path) -> Iterator[Identity]:
    """Yield the whole identities that came after the first one, the last one first."""
    numbers = _numbers(root)
    for name in sorted(numbers.keys() - {NAME}, key=numbers.__getitem__, reverse=True):
        with contextlib.suppress(_DamagedError):
            yield _read_one(root / name)


def _numbers(root: Path) -> dict[str, int]:
    """Return the names of identities at a root, and their numbers."""
    with translated("reading"):
        names = os.listdir(root)  # noqa: PTH208 - names only
    matches = {name: _IDENTITY.fullmatch(name) for name in names}
    return {name: int(match[1] or 1) for name, match in matches.items() if match}


def _numbered(number: int) -> str:
    return NAME if number == 1 else f".backfill-store.{number}.json"


def _strange(root: Path) -> set[str]:
    """Return the names at a root that an empty store does not have."""
    names = set(os.listdir(root)) - {FOLDER}  # noqa: PTH208 - names only
    return {name for name in names if not is_name(name)}
