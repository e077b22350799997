"""What stands in a store: one bulk pass over the folders, never one question for each file.

A name counts as a partition when it is the very name that the layout gives it and it is a regular
file. Everything else is a stranger: reported, never deleted, never fatal. A place that cannot be
read is an error; it is never counted as missing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.partitions import parse_day
from backfill_assets.core.store import Inventory
from backfill_assets.stores.files.durability import translated
from backfill_assets.stores.files.layout import HOLD_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query
    from backfill_assets.stores.files.layout import Layout

STRANGERS_NAMED = 1_000  # enough for a person to see what they are; the rest is counted


def scan(layout: Layout, catalogue: Catalogue, within: PartitionSet | None = None) -> Inventory:
    """Return the committed and held partitions of a catalogue, and what else stands there.

    Args:
        within: Look only at the queries and days of this set, and name no strangers.
    """
    found = _Findings()
    committed = {}
    held = {}
    names = {s + layout.suffix: catalogue.unit_bits[u] for u, s in catalogue.unit_segments.items()}
    holds = {s + HOLD_SUFFIX: catalogue.unit_bits[u] for u, s in catalogue.unit_segments.items()}
    if within is None:
        _scan_outer_folders(layout, catalogue, found)
    for query in catalogue.queries:
        if within is None:
            folders = _day_folders(layout, query, found)
        else:
            folders = ((d, layout.day_folder(query, d)) for d in within.masks.get(query.name, ()))
        committed[query.name], held[query.name] = _scan_days(folders, names, holds, found)
    return Inventory(
        committed=PartitionSet(catalogue, {name: days for name, days in committed.items() if days}),
        held=PartitionSet(catalogue, {name: days for name, days in held.items() if days}),
        strangers=tuple(sorted(found.strangers)) if within is None else (),
        strangers_count=found.count if within is None else 0,
    )


@dataclass(slots=True)
class _Findings:
    """Strangers met on the way."""

    strangers: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.strangers) < STRANGERS_NAMED:
            self.strangers.append(path)


def _scan_outer_folders(layout: Layout, catalogue: Catalogue, found: _Findings) -> None:
    """Report categories, value types and versions that the catalogue does not have."""
    known: dict[str, set[str]] = {}
    for query in catalogue.queries:
        parts = [*query.asset_path, f"v{query.version}"]
        for depth in range(1, len(parts)):
            known.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    for folder, names in known.items():
        for entry in _entries(f"{layout.root}/{folder}"):
            if entry.name not in names or not entry.is_dir():
                found.add(entry.path)


def _day_folders(layout: Layout, query: Query, found: _Findings) -> Iterator[tuple[date, str]]:
    """Yield the days that have a folder, and the folder."""
    for entry in _entries(layout.version_folder(query)):
        day = parse_day(entry.name)
        if day is None or not entry.is_dir():
            found.add(entry.path)
        else:
            yield day, entry.path


def _scan_days(
    folders: Iterable[tuple[date, str]],
    names: dict[str, int],
    holds: dict[str, int],
    found: _Findings,
) -> tuple[dict[date, int], dict[date, int]]:
    """Return the committed and the held units of each day."""
    committed: dict[date, int] = {}
    held: dict[date, int] = {}
    for day, folder in folders:
        files, hold_files = _scan_day(folder, names, holds, found)
        if files:
            committed[day] = files
        if hold_files:
            held[day] = hold_files
    return committed, held


def _scan_day(
    folder: str, names: dict[str, int], holds: dict[str, int], found: _Findings
) -> tuple[int, int]:
    """Return the masks of the units with a file and with a hold in one folder."""
    files = hold_files = 0
    for entry in _entries(folder):
        if not entry.is_file(follow_symlinks=False):
            found.add(entry.path)
        elif bit := names.get(entry.name):
            files |= bit
        elif bit := holds.get(entry.name):
            hold_files |= bit
        else:
            found.add(entry.path)
    return files, hold_files


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield what stands in a folder; a folder that is not there has nothing in it."""
    with translated("reading"):
        try:
            entries = os.scandir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            yield from entries
