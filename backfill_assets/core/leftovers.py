"""What stands in a store and is not asked for any more: what pruning may remove, and what never.

Nothing is removed unasked. What a catalogue expects, or will once its day closes, is no leftover;
neither is a hold, whatever became of the partition that it withdraws.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query


class LeftoverKind(StrEnum):
    """Why something is not asked for any more."""

    SUPERSEDED = "superseded version"
    LATER_VERSION = "version that the catalogue does not ask for yet"
    REMOVED_CATEGORY = "removed category"
    REMOVED_VALUE_TYPE = "removed value type"
    REMOVED_UNIT = "removed unit"
    NOT_EXPECTED = "not expected any more"
    STRANGER = "no file of the store"


@dataclass(frozen=True, slots=True)
class Leftover:
    """One file or folder that pruning would remove.

    Attributes:
        path: Below the store's root, with ``/``.
        size: In bytes; 0 for a folder.
        is_folder: Whether it is a folder; all that is in it is a leftover of its own.
    """

    path: str
    kind: LeftoverKind
    size: int
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What pruning would remove of one catalogue.

    Attributes:
        found: Each folder after all that is in it.
        kept: Paths among them that stay all the same: holds, and what is on another device.
    """

    found: tuple[Leftover, ...]
    kept: tuple[str, ...]


def kept_units(catalogue: Catalogue, query: Query, day: date, latest_closed_day: date) -> int:
    """Return the mask of the units whose files of a day are no leftovers.

    Those that are expected, and those that will be when the day closes.
    """
    return 0 if day < query.first_day else _kept_units(catalogue, day, latest_closed_day)


@lru_cache(maxsize=16_384)  # the days of 45 years, for one query after the other
def _kept_units(catalogue: Catalogue, day: date, latest_closed_day: date) -> int:
    is_ended = catalogue.last_day is not None and day > catalogue.last_day
    is_too_old = day < catalogue.oldest_retained_day(latest_closed_day)
    if is_ended or is_too_old or not catalogue.closing.is_civil_day(day):
        return 0
    return catalogue.open_units(day)
