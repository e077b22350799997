"""What a catalogue must be like, said by name when it is built and not when a run fails.

What Dagster cannot carry in a key, or a path cannot carry in a name, is refused here.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from backfill_assets.core.errors import CatalogueError
from backfill_assets.core.segments import DEVICE_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from backfill_assets.core.catalogue import Catalogue

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")  # a path segment, an asset key part, a column name
_OF_EVERY_SOURCE = frozenset({"date", "unit"})  # columns beside the category and the value types
_OF_EVERY_FILE = _OF_EVERY_SOURCE | {"value"}  # columns beside the category
_NOT_IN_KEYS = ("|", ",", "[", "]", "...", '"')  # where Dagster splits or quotes partition keys
_LONGEST_SEGMENT = 200  # bytes; file systems end at 255, and a suffix and a digest come on top


def check_catalogue(catalogue: Catalogue) -> None:
    """Refuse a catalogue that could not be kept.

    Raises:
        CatalogueError: a name, a unit, a day or a version is not valid as written.
    """
    _check_names("catalogue", [catalogue.name])
    _check_names("category", [c.name for c in catalogue.categories])
    _check_names("value type", [v.name for v in catalogue.value_types])
    _check_columns(catalogue)
    _check_units([u.name for u in catalogue.units])
    _check_days(catalogue)
    _check_versions(catalogue)


def _check_names(kind: str, names: Sequence[str]) -> None:
    if not names:
        message = f"no {kind} is given; name at least one"
        raise CatalogueError(message)
    for name in names:
        if not _NAME.fullmatch(name):
            message = f"{kind} {name!r}: use lower-case letters, digits and _, a letter first"
            raise CatalogueError(message)
        if name.upper() in DEVICE_NAMES:
            message = f"{kind} {name!r}: Windows keeps that name for a device; choose another"
            raise CatalogueError(message)
    _check_distinct(kind, names)


def _check_columns(catalogue: Catalogue) -> None:
    """Refuse two columns of one name in a file or a source: one would be read for the other."""
    categories = {category.name for category in catalogue.categories}
    for name in sorted(categories & _OF_EVERY_FILE):
        message = f"category {name!r}: every file has a column of that name; choose another"
        raise CatalogueError(message)
    for value_type in catalogue.value_types:
        if value_type.name in _OF_EVERY_SOURCE:
            found = "every source has a column of that name"
        elif value_type.name in categories:
            found = "a category has that name, and a source would have two such columns"
        else:
            continue
        message = f"value type {value_type.name!r}: {found}; choose another"
        raise CatalogueError(message)


def _check_distinct(kind: str, names: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        message = f"{kind} {repeated[0]!r} is given twice; keep one"
        raise CatalogueError(message)


def _check_units(names: Sequence[object]) -> None:
    if not names:
        message = "no unit is given; name at least one"
        raise CatalogueError(message)
    for name in names:
        if not isinstance(name, str):
            message = f"unit {name!r} is a {type(name).__name__}, not text; a missing value?"
            raise CatalogueError(message)
        _check_unit(name)
    _check_distinct("unit", [str(name) for name in names])


def _check_unit(name: str) -> None:
    if not name.strip() or name != name.strip():
        message = f"unit {name!r}: is empty, or begins or ends with a blank; strip it"
        raise CatalogueError(message)
    if not name.isprintable():
        message = f"unit {name!r}: has characters that cannot be seen; remove them"
        raise CatalogueError(message)
    if name == "*":
        message = "unit '*': it means every unit where partitions are named; rename it"
        raise CatalogueError(message)
    for text in _NOT_IN_KEYS:
        if text in name:
            message = (
                f"unit {name!r}: Dagster gives {text!r} a meaning in partition keys; rename it"
            )
            raise CatalogueError(message)
    # A later twin that differs in case only is encoded in full, three bytes for one.
    if 3 * len(name.encode()) > _LONGEST_SEGMENT:
        message = f"unit {name!r}: its file name would be too long; shorten it to 60 characters"
        raise CatalogueError(message)


def _check_days(catalogue: Catalogue) -> None:
    if catalogue.retention_days is not None and catalogue.retention_days < 1:
        message = (
            f"retention_days of {catalogue.name!r} is {catalogue.retention_days}; keep one day or "
            "more, or give None to keep all"
        )
        raise CatalogueError(message)
    if catalogue.look_back_days < 0:
        message = (
            f"look_back_days of {catalogue.name!r} is {catalogue.look_back_days}; give 0 or more"
        )
        raise CatalogueError(message)
    if catalogue.last_day is not None and catalogue.last_day < catalogue.first_day:
        message = (
            f"catalogue {catalogue.name!r} ends on {catalogue.last_day}, "
            f"before it begins on {catalogue.first_day}"
        )
        raise CatalogueError(message)
    for unit in catalogue.units:
        if unit.first_day and unit.last_day and unit.last_day < unit.first_day:
            message = f"unit {unit.name!r} closes on {unit.last_day}, before it opens"
            raise CatalogueError(message)


def _check_versions(catalogue: Catalogue) -> None:
    names = {f"{c.name}/{v.name}" for c in catalogue.categories for v in catalogue.value_types}
    for name, version in catalogue.versions.items():
        if name not in names:
            message = (
                f"versions names {name!r}, which is no category/value_type of {catalogue.name}"
            )
            raise CatalogueError(message)
        if version < 1:
            message = f"version {version} of {name!r}: versions begin at 1"
            raise CatalogueError(message)
