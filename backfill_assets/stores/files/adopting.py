"""Files that somebody else laid out as this store does: finding them in a tree.

``[catalogue/]category/value_type/[v1/]YYYY-MM-DD/unit.parquet`` or ``.json``, or what markers
commit. Trees are only read; ``checking`` says which files may be taken in.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.core.partitions import Partition, parse_day
from backfill_assets.stores.files import attempts, documents, identity
from backfill_assets.stores.files.layout import HOLD_SUFFIX, MARKER_SUFFIX
from backfill_assets.stores.files.markers import committed_in, parse_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query

FORM = "[catalogue/]category/value_type/[v1/]YYYY-MM-DD/unit.parquet or .json"
_SUFFIXES = frozenset({".parquet", ".json"})
# Of a tree that is a store itself.
_NOT_DATA = frozenset({attempts.FOLDER, documents.FOLDER})


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a tree, and the partition that its path gives it to."""

    path: str
    partition: Partition


@dataclass(frozen=True, slots=True)
class Refusal:
    """A path of a tree that is not taken in, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Tree:
    """What a tree holds.

    Attributes:
        files: In no order that means anything; one for each partition.
        refused: What is no partition of any catalogue.
    """

    files: list[FoundFile] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def read_tree(directory: Path, catalogues: Sequence[Catalogue]) -> Tree:
    """Return the files of a tree, by the partitions that their paths give them to.

    A folder that cannot be read is refused by name, and the others are read.
    """
    tree = Tree()
    units = {c.name: {name: unit for unit, name in c.unit_segments.items()} for c in catalogues}
    for folder, entries in _folders(str(directory), tree):
        parts = Path(folder).relative_to(directory).parts
        place = _place(parts, catalogues) if entries else ""
        if isinstance(place, str):
            tree.refused += [Refusal(entry.path, place) for entry in entries]
        else:
            _read_day(entries, place, units[place.query.catalogue], tree)
    return _without_doubles(tree)


@dataclass(frozen=True, slots=True)
class _Place:
    query: Query
    day: date


def _folders(directory: str, tree: Tree) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield each folder and its files; symlinks and other things are refused by name."""
    left = [directory]
    while left:
        folder = left.pop()
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except OSError as error:
            tree.refused.append(Refusal(folder, f"cannot be read: {error.strerror}"))
            continue
        files = []
        for entry in entries:
            if folder == directory and _is_of_a_store(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                files.append(entry)
            else:
                reason = "is a symlink, or no regular file; give the file itself"
                tree.refused.append(Refusal(entry.path, reason))
        yield folder, files


def _is_of_a_store(name: str) -> bool:
    return name in _NOT_DATA or identity.is_name(name)


def _place(parts: tuple[str, ...], catalogues: Sequence[Catalogue]) -> _Place | str:
    """Return the query and the day of a folder, or why it has none."""
    readings = {
        (query, version)
        for catalogue in catalogues
        for query, version in _readings(parts[:-1], catalogue)
    }
    day = parse_day(parts[-1]) if parts else None
    if day is None or not readings:
        return f"is no file of a query on a day; expected {FORM}"
    if len(readings) > 1:
        names = " or ".join(sorted("/".join(query.asset_path) for query, _ in readings))
        return f"could be of {names}; put it below catalogue/category/value_type/v1"
    query, version = readings.pop()
    if version not in {None, f"v{query.version}"}:
        return f"is of {version}, and the catalogue asks for v{query.version} of {query.name}"
    return _Place(query, day)


def _readings(parts: tuple[str, ...], catalogue: Catalogue) -> Iterator[tuple[Query, str | None]]:
    """Yield each query, and the version that is named, which the folders above a day can mean."""
    inner = [parts]
    if parts[:1] == (catalogue.name,):
        inner.append(parts[1:])
    for names in inner:
        query = catalogue.queries_by_name.get("/".join(names[:2]))
        if query is None or len(names) > 3:
            continue
        if len(names) == 2:
            yield query, None
        elif names[2][:1] == "v" and names[2][1:].isdecimal():
            yield query, names[2]


def _read_day(
    entries: Sequence[os.DirEntry[str]], place: _Place, units: dict[str, str], tree: Tree
) -> None:
    names = {entry.name for entry in entries}
    of_markers = _names_of_markers(entries, tree)
    for entry in entries:
        is_committed = of_markers.get(entry.name)
        if is_committed is False:
            continue  # a marker, or what no marker commits any more
        name, dot, rest = entry.name.partition(".")
        reason = None
        if not is_committed and dot + rest not in _SUFFIXES:
            reason = f"is no file of a unit; expected {FORM}"
        elif name not in units:
            reason = _no_unit(name, place.query.catalogue, units)
        elif name + HOLD_SUFFIX in names:
            reason = f"is held in the tree, by {name}{HOLD_SUFFIX} beside it"
        if reason is not None:
            tree.refused.append(Refusal(entry.path, reason))
        else:
            partition = Partition(place.query, place.day, units[name])
            tree.files.append(FoundFile(entry.path, partition))


def _names_of_markers(entries: Sequence[os.DirEntry[str]], tree: Tree) -> dict[str, bool]:
    """Return the names that the marker protocol gives, and whether each is a committed file.

    Of a unit with a marker that cannot be read none is, and that marker is refused.
    """
    if not any(entry.name.endswith(MARKER_SUFFIX) for entry in entries):
        return {}
    folder = os.path.dirname(entries[0].path)  # noqa: PTH120 - text, for speed
    found: dict[str, bool] = {}
    unreadable: dict[str, str] = {}  # a marker's name does not tell the suffix of its data
    for suffix in _SUFFIXES:
        numbers: dict[str, list[int]] = {}
        for entry in entries:
            if parsed := parse_name(entry.name, suffix):
                segment, number, is_marker = parsed
                found.setdefault(entry.name, False)
                if is_marker:
                    numbers.setdefault(segment, []).append(number)
        for segment, of_unit in numbers.items():
            try:
                marker = committed_in(folder, segment, of_unit, suffix)
            except OSError as error:
                unreadable[error.filename or folder] = f"cannot be read: {error.strerror}"
                continue
            if marker is not None and marker.data in found:
                found[marker.data] = True
    tree.refused += [Refusal(path, reason) for path, reason in unreadable.items()]
    return found


def _no_unit(name: str, catalogue: str, units: dict[str, str]) -> str:
    written = {unit: path_segment for path_segment, unit in units.items()}
    if name in written:
        return f"the file of unit {name!r} is called {written[name]!r}; rename it"
    return f"{catalogue} has no unit whose file is called {name!r}"


def _without_doubles(tree: Tree) -> Tree:
    """Keep the first file of each partition by path, and refuse the others by name."""
    kept: dict[Partition, FoundFile] = {}
    for found in sorted(tree.files, key=lambda found: found.path):
        first = kept.setdefault(found.partition, found)
        if first is not found:
            reason = f"is of {found.partition}, and so is {first.path}; keep one"
            tree.refused.append(Refusal(found.path, reason))
    return Tree(list(kept.values()), tree.refused)
