"""A partition and its names: one file, one cell of Dagster's grid.

Dagster sees a partition as the key ``day|unit`` of the asset ``catalogue/category/value_type``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, date
from enum import StrEnum
from functools import lru_cache

from backfill_assets.core.errors import UnknownPartitionError

KEY_SEPARATOR = "|"  # Dagster's own, between the parts of a multi-partition key


class ColumnType(StrEnum):
    """The declared type of a column; the same on every day, whatever the day's values are."""

    STRING = "string"
    INT64 = "int64"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Category × value type of one catalogue: one Dagster asset.

    Attributes:
        first_day: ``E(q)``, the first day on which the query means something; inclusive.
        version: Part of the path; a new version is a new output space.
    """

    catalogue: str
    category: str
    value_type: str
    category_type: ColumnType
    column_type: ColumnType
    first_day: date
    version: int = 1
    description: str = ""

    @property
    def name(self) -> str:
        """``category/value_type``: unique within the catalogue."""
        return f"{self.category}/{self.value_type}"

    @property
    def asset_path(self) -> tuple[str, str, str]:
        """The parts of the Dagster asset key."""
        return (self.catalogue, self.category, self.value_type)


@dataclass(frozen=True, slots=True)
class Partition:
    """One file: what one query says about one unit on one day."""

    query: Query
    day: date
    unit: str

    @property
    def key(self) -> str:
        """The Dagster partition key, ``2013-08-03|JFK``."""
        return partition_key(self.day, self.unit)

    def __str__(self) -> str:
        return f"{'/'.join(self.query.asset_path)}/{self.day.isoformat()}/{self.unit}"


def partition_key(day: date, unit: str) -> str:
    """Return the Dagster key of a day and a unit. Dagster sorts dimensions by name: date, unit."""
    return f"{day.isoformat()}{KEY_SEPARATOR}{unit}"


def parse_partition_key(key: str) -> tuple[date, str]:
    """Return the day and the unit of a Dagster key.

    Raises:
        UnknownPartitionError: the key is not of the form ``YYYY-MM-DD|unit``.
    """
    day_text, separator, unit = key.partition(KEY_SEPARATOR)
    day = parse_day(day_text)
    if not separator or not unit or day is None:
        message = f"partition key {key!r}: expected the form 'YYYY-MM-DD|unit'"
        raise UnknownPartitionError(message)
    return day, unit


@lru_cache(maxsize=8_192)  # every query has the same days: a scan of a million asks 20,000 times
def parse_day(text: str) -> date | None:
    """Return the day written as ``YYYY-MM-DD``, or None where the text is no such day.

    The first and the last year of the calendar have none: the instants around their days cannot all
    be told.
    """
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    # fromisoformat also takes 20130803 and 2013-W31-6: one day, one name.
    is_day = day.isoformat() == text and MINYEAR < day.year < MAXYEAR
    return day if is_day else None
