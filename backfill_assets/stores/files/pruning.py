"""Leftovers of a catalogue's folder: finding them, and removing those that were asked for.

Everything is looked at without following a symlink, and removed relative to folders that were
opened without following one: what is removed stood below the catalogue's folder, whatever is moved
or replaced meanwhile.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from backfill_assets.core.leftovers import Leftover, LeftoverKind, Leftovers, kept_units
from backfill_assets.core.partitions import parse_day
from backfill_assets.core.segments import segment, text_of
from backfill_assets.stores.files.durability import translated
from backfill_assets.stores.files.layout import HOLD_SUFFIX, RESTATE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query
    from backfill_assets.stores.files.durability import Flusher
    from backfill_assets.stores.files.layout import Layout

_NAME = re.compile(r"[a-z][a-z0-9_]*")  # what a category or a value type can be called
_VERSION = re.compile(r"v([1-9][0-9]*)")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_IN_USE = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})


def leftovers(
    layout: Layout,
    segment_of: Callable[[str], str | None],
    catalogue: Catalogue,
    latest_closed_day: date,
) -> Leftovers:
    """Return what stands in a catalogue's folder and is not asked for any more.

    Args:
        segment_of: Of the commit protocol: whose data file, or what commits it, has a name.

    Raises:
        StoreUnreadableError: a place cannot be read; nothing may be removed then.
    """
    walk = _Walk(layout, segment_of, catalogue, latest_closed_day)
    with translated("reading"):
        walk.look()
    return Leftovers(tuple(walk.found), tuple(walk.kept))


def remove(root: Path, found: Sequence[Leftover], flusher: Flusher) -> int:
    """Remove leftovers, durably, and return how many are gone.

    A crash leaves each of them there or gone. What is gone already, what has something in it by
    now, and what can only be reached through a symlink is left alone.
    """
    count = 0
    touched = []
    for folder, group in groupby(found, key=lambda leftover: os.path.dirname(leftover.path)):  # noqa: PTH120 - text, for speed
        with translated("removing below"), suppress(FileNotFoundError, NotADirectoryError):
            with _opened(root, folder) as descriptor:
                count += sum(_remove(leftover, descriptor) for leftover in group)
            touched.append(f"{root}/{folder}")
    flusher.flush(path for path in touched if os.path.isdir(path))  # noqa: PTH112 - text, for speed
    return count


class _Walk:
    """One look at a catalogue's folder."""

    def __init__(
        self,
        layout: Layout,
        segment_of: Callable[[str], str | None],
        catalogue: Catalogue,
        latest_closed_day: date,
    ) -> None:
        self.found: list[Leftover] = []
        self.kept: list[str] = []
        self._layout = layout
        self._segment_of = segment_of
        self._catalogue = catalogue
        self._latest_closed_day = latest_closed_day
        self._device = layout.root.stat().st_dev  # the root may be a symlink
        self._units = {name: unit for unit, name in catalogue.unit_segments.items()}

    def look(self) -> None:
        """Look at every category; each known one down to its files."""
        known: dict[str, dict[str, Query]] = {}
        for query in self._catalogue.queries:
            known.setdefault(query.category, {})[query.value_type] = query
        looks = {name: partial(self._look_at_category, queries) for name, queries in known.items()}
        with os.scandir(self._layout.root) as entries:
            for entry in entries:
                if entry.name == self._catalogue.name and self._is_ours(entry):
                    self._look_below(entry.path, looks, LeftoverKind.REMOVED_CATEGORY)

    def _look_at_category(self, queries: Mapping[str, Query], folder: str) -> None:
        looks = {name: partial(self._look_at_query, query) for name, query in queries.items()}
        self._look_below(folder, looks, LeftoverKind.REMOVED_VALUE_TYPE)

    def _look_below(
        self, folder: str, looks: Mapping[str, Callable[[str], None]], kind: LeftoverKind
    ) -> None:
        """Look at the folders that the layout uses; the others are of a kind that was removed."""
        for entry in _entries(folder):
            look = looks.get(entry.name)
            if look is not None and entry.is_dir():
                if self._is_ours(entry):
                    look(entry.path)
            elif _is_folder(entry) and look is None and _NAME.fullmatch(entry.name):
                self._take(entry, kind)
            else:
                self._take(entry, LeftoverKind.STRANGER)

    def _look_at_query(self, query: Query, folder: str) -> None:
        for entry in _entries(folder):
            version = _VERSION.fullmatch(entry.name) if entry.is_dir() else None
            if version is None:
                self._take(entry, LeftoverKind.STRANGER)
            elif (number := int(version[1])) != query.version:
                is_older = number < query.version
                kind = LeftoverKind.SUPERSEDED if is_older else LeftoverKind.LATER_VERSION
                self._take(entry, kind)
            elif self._is_ours(entry):
                self._look_at_days(query, entry.path)

    def _look_at_days(self, query: Query, folder: str) -> None:
        for entry in _entries(folder):
            day = parse_day(entry.name) if entry.is_dir() else None
            if day is None:
                self._take(entry, LeftoverKind.STRANGER)
                continue
            kept = kept_units(self._catalogue, query, day, self._latest_closed_day)
            if not kept and entry.is_symlink():
                self._take(entry, LeftoverKind.NOT_EXPECTED)
            elif self._is_ours(entry):
                is_empty = self._look_at_files(entry.path, kept)
                # An empty folder of an expected day is about to be filled.
                if is_empty and not kept:
                    self._add(entry, LeftoverKind.NOT_EXPECTED)

    def _look_at_files(self, folder: str, kept: int) -> bool:
        """Look at the files of a day; return whether nothing of it stays."""
        stays = False
        for entry in _entries(folder):
            unit = self._unit_of(entry)
            if unit is None:
                kind = LeftoverKind.STRANGER
            elif unit not in self._catalogue.unit_bits:
                kind = LeftoverKind.REMOVED_UNIT
            elif self._catalogue.unit_bits[unit] & kept:
                stays = True
                continue
            else:
                kind = LeftoverKind.NOT_EXPECTED
            stays |= not self._take(entry, kind)
        return not stays

    def _unit_of(self, entry: os.DirEntry[str]) -> str | None:
        """Return the unit that a file's name gives it to, or None where it is no name of ours."""
        name = self._segment_of(entry.name)
        if name is None:
            name, dot, rest = entry.name.partition(".")
            if dot + rest not in {HOLD_SUFFIX, RESTATE_SUFFIX}:
                return None
        if not entry.is_file(follow_symlinks=False):
            return None
        if name in self._units:
            return self._units[name]
        try:
            unit = text_of(name)
        except ValueError:
            return None
        return unit if segment(unit) == name else None

    def _take(self, entry: os.DirEntry[str], kind: LeftoverKind) -> bool:
        """Count something with all that is in it as a leftover; return whether nothing stays."""
        if _is_folder(entry):
            if not self._is_ours(entry):
                return False
            stay = [inner for inner in _entries(entry.path) if not self._take(inner, kind)]
            if stay:
                return False
        elif entry.name.endswith(HOLD_SUFFIX) and entry.is_file(follow_symlinks=False):
            self.kept.append(self._below_root(entry))
            return False
        self._add(entry, kind)
        return True

    def _is_ours(self, entry: os.DirEntry[str]) -> bool:
        """Return whether a folder may be entered: no symlink, and on the store's own device."""
        is_ours = _is_folder(entry) and entry.stat(follow_symlinks=False).st_dev == self._device
        if not is_ours:
            self.kept.append(self._below_root(entry))
        return is_ours

    def _add(self, entry: os.DirEntry[str], kind: LeftoverKind) -> None:
        is_folder = _is_folder(entry)
        with suppress(FileNotFoundError):  # it went meanwhile
            size = 0 if is_folder else entry.stat(follow_symlinks=False).st_size
            self.found.append(Leftover(self._below_root(entry), kind, size, is_folder))

    def _below_root(self, entry: os.DirEntry[str]) -> str:
        return entry.path.removeprefix(f"{self._layout.root}/")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what stands in a folder, short names first; a folder that is gone is empty.

    So markers are removed before data, and older ones before newer ones: a crash never leaves an
    older commit as the one that counts.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: (len(entry.name), entry.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def _opened(root: Path, folder: str) -> Iterator[int]:
    """Open a folder below the root, step by step, so that no symlink is followed on the way.

    Raises:
        NotADirectoryError: something else, or a symlink, stands there.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in folder.split("/"):
            outer, descriptor = descriptor, _open_inner(name, descriptor)
            os.close(outer)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_inner(name: str, outer: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=outer)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotADirectoryError(error.errno, error.strerror, name) from error
        raise


def _remove(leftover: Leftover, folder: int) -> bool:
    """Remove one leftover of an opened folder; return whether it is gone."""
    name = os.path.basename(leftover.path)  # noqa: PTH119 - text, for speed
    try:
        if leftover.is_folder:
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False  # it went, or became something else
    except OSError as error:
        if error.errno in _IN_USE:
            return False
        raise
    return True
