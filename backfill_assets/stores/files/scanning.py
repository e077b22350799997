"""What stands in a store: one bulk pass over the folders, never one question for each file.

A name counts when it is the very name that the layout gives it and it is a regular file; what a
day's names mean together is the commit protocol's. Everything else is a stranger: reported, never
deleted, never fatal. A place that cannot be read is an error; it is never counted as missing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.partitions import parse_day
from backfill_assets.core.store import Inventory
from backfill_assets.stores.files.durability import translated
from backfill_assets.stores.files.layout import HOLD_SUFFIX, RESTATE_SUFFIX
from backfill_assets.stores.files.looks import Reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query
    from backfill_assets.stores.files.layout import Layout
    from backfill_assets.stores.files.looks import Looks, Masks

STRANGERS_NAMED = 1_000  # enough for a person to see what they are; the rest is counted


@dataclass(slots=True)
class Findings:
    """Strangers met on the way."""

    strangers: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, path: str) -> None:
        """Count a stranger."""
        self.count += 1
        if len(self.strangers) < STRANGERS_NAMED:
            self.strangers.append(path)


class DayScan(Protocol):
    """How a commit protocol reads a day's folder."""

    def __call__(self, folder: str, found: Findings) -> Sequence[int]:
        """Return the masks of the units that are committed, held, and to be restated."""


def scan(
    layout: Layout, scan_day: DayScan, catalogue: Catalogue, looks: Looks | None = None
) -> Inventory:
    """Return the committed and held partitions of a catalogue, and what else stands there.

    Args:
        looks: What earlier looks found, where a day's names say all.
    """
    found = Findings()
    _scan_outer_folders(layout, catalogue, found)
    masks: dict[str, Masks] = {}
    for query in catalogue.queries:
        read = partial(_read, layout, scan_day, query, found)
        folder = layout.version_folder(query)
        masks[query.name] = read().masks if looks is None else looks.masks(catalogue, folder, read)
    committed, held, restating = _sets(catalogue, masks)
    return Inventory(
        committed=committed,
        held=held,
        restating=restating,
        strangers=tuple(sorted(found.strangers)),
        strangers_count=found.count,
    )


def scan_within(layout: Layout, scan_day: DayScan, within: PartitionSet) -> Inventory:
    """Return what stands of the queries and days of a set; strangers are not named."""
    found = Findings()
    queries = [q for q in within.catalogue.queries if q.name in within.masks]
    masks = {
        query.name: _scan_days(
            ((day, layout.day_folder(query, day)) for day in within.masks[query.name]),
            scan_day,
            found,
        )
        for query in queries
    }
    committed, held, restating = _sets(within.catalogue, masks)
    return Inventory(
        committed=committed, held=held, restating=restating, strangers=(), strangers_count=0
    )


def _read(layout: Layout, scan_day: DayScan, query: Query, found: Findings) -> Reading:
    """Look at all days of a query."""
    before = found.count
    days = list(_day_folders(layout, query, found))
    masks = _scan_days(days, scan_day, found)
    folders = [layout.version_folder(query), *(folder for _, folder in days)]
    return Reading(masks, folders, has_strangers=found.count > before)


def _sets(catalogue: Catalogue, masks: Mapping[str, Masks]) -> Iterator[PartitionSet]:
    """Yield the sets of what is committed, held, and to be restated."""
    for kind in range(3):
        of_kind = {name: kinds[kind] for name, kinds in masks.items() if kinds[kind]}
        yield PartitionSet(catalogue, of_kind)


def day_scan_by_name(catalogue: Catalogue, suffix: str) -> DayScan:
    """Return a scan by which a data file is committed because its name stands there."""
    kinds = (suffix, HOLD_SUFFIX, RESTATE_SUFFIX)
    width = len(catalogue.unit_names)
    every_unit = (1 << width) - 1
    # The three masks side by side in one number, so that a day is one sum: names are distinct.
    bits = {
        segment + kind_suffix: catalogue.unit_bits[unit] << kind * width
        for unit, segment in catalogue.unit_segments.items()
        for kind, kind_suffix in enumerate(kinds)
    }

    def scan_day(folder: str, found: Findings) -> tuple[int, int, int]:
        entries = entries_of(folder)
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        try:
            total = sum(map(bits.__getitem__, names))
        except KeyError:
            names = []
        if len(names) != len(entries):
            total = _known(entries, bits, found)
        if total <= every_unit:  # nearly always: no hold and no wish to restate
            return total, 0, 0
        return total & every_unit, total >> width & every_unit, total >> 2 * width

    return scan_day


def _known(entries: Iterable[os.DirEntry[str]], bits: Mapping[str, int], found: Findings) -> int:
    """Return the bits of a day that has strangers, and report these."""
    total = 0
    for entry in entries:
        if entry.name in bits and entry.is_file(follow_symlinks=False):
            total |= bits[entry.name]
        else:
            found.add(entry.path)
    return total


def _scan_outer_folders(layout: Layout, catalogue: Catalogue, found: Findings) -> None:
    """Report categories, value types and versions that the catalogue does not have."""
    known: dict[str, set[str]] = {}
    for query in catalogue.queries:
        parts = [*query.asset_path, f"v{query.version}"]
        for depth in range(1, len(parts)):
            known.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    for folder, names in known.items():
        for entry in entries_of(f"{layout.root}/{folder}"):
            if entry.name not in names or not entry.is_dir():
                found.add(entry.path)


def _day_folders(layout: Layout, query: Query, found: Findings) -> Iterator[tuple[date, str]]:
    """Yield the days that have a folder, and the folder."""
    for entry in entries_of(layout.version_folder(query)):
        day = parse_day(entry.name)
        if day is None or not entry.is_dir():
            found.add(entry.path)
        else:
            yield day, entry.path


def _scan_days(folders: Iterable[tuple[date, str]], scan_day: DayScan, found: Findings) -> Masks:
    """Return the units with a file, with a hold and with a wish to be restated, of each day."""
    kinds: Masks = ({}, {}, {})
    for day, folder in folders:
        for days, mask in zip(kinds, scan_day(folder, found), strict=True):
            if mask:
                days[day] = mask
    return kinds


def entries_of(folder: str) -> list[os.DirEntry[str]]:
    """Return what stands in a folder; a folder that is not there has nothing in it."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        with translated("reading"):  # only here: entering it for each folder takes time
            raise
