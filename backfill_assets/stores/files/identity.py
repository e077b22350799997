"""The root proves itself: ``.backfill-store.json`` names format, protocol and time zones.

A root that has lost its identity is an error, not a million missing partitions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from backfill_assets.core.errors import StoreUnreadableError, StoreUnsupportedError
from backfill_assets.stores.files.attempts import FOLDER
from backfill_assets.stores.files.durability import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.stores.files.attempts import AttemptFolder

NAME = ".backfill-store.json"
FORMAT_VERSION = 1  # of the layout and of the commit record


@dataclass(frozen=True, slots=True)
class Identity:
    """What a root says about itself.

    Attributes:
        format_version: Of the layout and the commit record.
        commit_protocol: How a file becomes visible: ``link``.
        file_format: ``parquet`` or ``json``.
        zones: The time zone of each catalogue, by name.
    """

    format_version: int
    commit_protocol: str
    file_format: str
    zones: dict[str, str]

    @classmethod
    def of(cls, catalogues: Sequence[Catalogue], file_format: str, protocol: str) -> Identity:
        """Return the identity that a store of these catalogues has."""
        zones = {catalogue.name: catalogue.closing.zone.key for catalogue in catalogues}
        return cls(FORMAT_VERSION, protocol, file_format, zones)


def read(root: Path) -> Identity | None:
    """Return the identity of a root, or None where it has none.

    Raises:
        StoreUnreadableError: it cannot be read.
        StoreUnsupportedError: another version of the format owns the root.
    """
    path = root / NAME
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
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, IsADirectoryError) as error:
        message = f"{path} is not a store's identity ({error}); restore it from a backup"
        raise StoreUnreadableError(message) from error


def establish(root: Path, attempts: AttemptFolder, wanted: Identity) -> None:
    """Write the identity of a new root, or check that of an old one and add new catalogues.

    Concurrent callers agree; a crash leaves the old identity or the new one.

    Raises:
        StoreUnsupportedError: the root was made with other settings.
    """
    found = read(root)
    if found is None:
        _write(root, attempts, wanted, replace=False)
        found = read(root)
    if found is not None:
        check(root, found, wanted)
        if not wanted.zones.items() <= found.zones.items():
            zones = found.zones | wanted.zones
            _write(root, attempts, dataclasses.replace(found, zones=zones), replace=True)


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
    try:
        with translated("reading"):
            strange = sorted(set(os.listdir(root)) - {FOLDER})  # noqa: PTH208 - names only
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


def _write(root: Path, attempts: AttemptFolder, identity: Identity, *, replace: bool) -> None:
    """Put the identity in place in one step, durably; an existing one wins unless replaced."""
    with translated("preparing"), attempts.open("identity") as folder:
        draft = folder / NAME
        with draft.open("x", encoding="utf-8") as file:
            json.dump(asdict(identity), file, indent=2, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(root / NAME)
        else:
            # Somebody else may make the store in the same moment: the first one wins.
            with contextlib.suppress(FileExistsError):
                (root / NAME).hardlink_to(draft)
        descriptor = os.open(root, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
