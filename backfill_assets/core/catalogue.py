"""What is expected of one data set: its units, its queries, and the days that they speak of.

A catalogue is checked when it is built: what Dagster cannot carry in a key, or a path cannot
carry in a name, is refused here, by name, before anything is computed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from backfill_assets.core.catalogue_checks import check_catalogue
from backfill_assets.core.closing import ONE_DAY
from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.partitions import (
    ColumnType,
    Partition,
    Query,
    parse_day,
    parse_partition_key,
)
from backfill_assets.core.segments import segments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date, datetime

    from backfill_assets.core.closing import ClosingPolicy


@dataclass(frozen=True, slots=True)
class Unit:
    """Who or where the data is about.

    Attributes:
        name: Any text without what Dagster splits keys at.
        first_day: The first day it is open, or None for ever before; inclusive.
        last_day: The last day it is open, or None for ever after; inclusive.
    """

    name: str
    first_day: date | None = None
    last_day: date | None = None

    def is_open(self, day: date) -> bool:
        """Return whether data of ``day`` is expected of this unit."""
        after_opening = self.first_day is None or day >= self.first_day
        return after_opening and (self.last_day is None or day <= self.last_day)


@dataclass(frozen=True, slots=True)
class Category:
    """One way to cut the data; its name is a column of every file."""

    name: str
    type: ColumnType = ColumnType.STRING
    description: str = ""
    first_day: date | None = None


@dataclass(frozen=True, slots=True)
class ValueType:
    """One thing that is measured; its type is the type of the column ``value``."""

    name: str
    type: ColumnType = ColumnType.FLOAT64
    description: str = ""
    first_day: date | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """The queries that share a first day, and so a rectangle of days × units in Dagster.

    Dagster gives every asset one partitions definition, and a run never mixes two.
    """

    first_day: date
    queries: tuple[Query, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Catalogue:
    """The units and queries of one data set: every category × every value type is a query.

    Attributes:
        first_day: The first day of all; inclusive.
        last_day: The last day of all, inclusive, or None where days keep coming.
        retention_days: How many of the newest closed days are expected, or None for all; older
            ones stand where they are until they are pruned, and are never made again.
        look_back_days: How many of the newest closed days are looked at for late data, where the
            source has fingerprints.
        restates_changed: Whether days whose data changed are made again by themselves; they are
            shown as stale in any case.
        versions: The version of a query by its name, ``category/value_type``; 1 where absent.
    """

    name: str
    description: str = ""
    closing: ClosingPolicy
    first_day: date
    last_day: date | None = None
    units: Sequence[Unit]
    categories: Sequence[Category]
    value_types: Sequence[ValueType]
    retention_days: int | None = None
    look_back_days: int = 0
    restates_changed: bool = True
    versions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_catalogue(self)

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """Every query, categories outermost: the catalogue order."""
        return tuple(self._query(c, v) for c in self.categories for v in self.value_types)

    @cached_property
    def queries_by_name(self) -> dict[str, Query]:
        """Every query by ``category/value_type``, in catalogue order."""
        return {query.name: query for query in self.queries}

    @cached_property
    def unit_names(self) -> tuple[str, ...]:
        """Every unit's name in catalogue order; a unit's place is its bit."""
        return tuple(unit.name for unit in self.units)

    @cached_property
    def unit_bits(self) -> dict[str, int]:
        """The bit of each unit in a mask: ``1 << place``."""
        return {name: 1 << place for place, name in enumerate(self.unit_names)}

    @cached_property
    def unit_segments(self) -> dict[str, str]:
        """The path segment of each unit."""
        return segments(self.unit_names)

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The queries by first day, the earliest first."""
        first_days = sorted({query.first_day for query in self.queries})
        return tuple(
            Grid(first, tuple(q for q in self.queries if q.first_day == first))
            for first in first_days
        )

    def days(self, first: date, last: date) -> Iterator[date]:
        """Yield the civil days of the catalogue from ``last`` back to ``first``, both inclusive."""
        day = last if self.last_day is None else min(last, self.last_day)
        earliest = max(first, self.first_day)
        while day >= earliest:
            if self.closing.is_civil_day(day):
                yield day
            day -= ONE_DAY

    def latest_closed_day(self, now: datetime) -> date:
        """Return the newest day of the catalogue that is closed at ``now``, which must be aware.

        It is before ``first_day`` where no day has closed yet.
        """
        latest = self.closing.latest_closed_day(now)
        if self.last_day is None or latest <= self.last_day:
            return latest
        return next(self.days(self.first_day, self.last_day), latest)

    def first_open_day(self, now: datetime) -> date | None:
        """Return the oldest day of the catalogue that is not closed, or None after its last."""
        day = max(self.first_day, self.closing.latest_closed_day(now) + ONE_DAY)
        while not self.closing.is_civil_day(day):
            day += ONE_DAY
        return None if self.last_day is not None and day > self.last_day else day

    def open_units(self, day: date) -> int:
        """Return the mask of the units of which data of ``day`` is expected."""
        return sum(self.unit_bits[unit.name] for unit in self.units if unit.is_open(day))

    def oldest_retained_day(self, latest_closed_day: date) -> date:
        """Return the oldest day that is expected while ``latest_closed_day`` is the watermark.

        It moves on as days close. Days that never were are not counted.
        """
        if self.retention_days is None:
            return self.first_day
        return _oldest_retained_day(self, latest_closed_day)

    def why_not_expected(
        self, partition: Partition, latest_closed_day: date | None = None
    ) -> str | None:
        """Return why a partition is not expected, or None where it is.

        Args:
            latest_closed_day: The watermark, from which retention counts back. Without it nothing
                is too old: only what never was expected and never will be has a reason.
        """
        query, day = partition.query, partition.day
        if day < query.first_day:
            return f"{query.name} begins on {query.first_day}"
        if self.last_day is not None and day > self.last_day:
            return f"{self.name} ends on {self.last_day}"
        if not self.closing.is_civil_day(day):
            return f"{day} never was in {self.closing.zone.key}"
        if not self.open_units(day) & self.unit_bits[partition.unit]:
            return f"unit {partition.unit!r} is not open on {day}"
        if latest_closed_day is not None:
            return self._why_too_old(day, latest_closed_day)
        return None

    def query(self, name: str) -> Query:
        """Return the query called ``category/value_type``.

        Raises:
            UnknownPartitionError: the catalogue has none of that name.
        """
        try:
            return self.queries_by_name[name]
        except KeyError:
            message = f"query {name!r}: {self.name} has {', '.join(self.queries_by_name)}"
            raise UnknownPartitionError(message) from None

    def partition(self, query_name: str, day: date, unit: str) -> Partition:
        """Return a partition by name; it need not be expected.

        Raises:
            UnknownPartitionError: no such query or unit.
        """
        if unit not in self.unit_bits:
            message = f"unit {unit!r}: {self.name} has {', '.join(map(repr, self.unit_names))}"
            raise UnknownPartitionError(message)
        return Partition(self.query(query_name), day, unit)

    def partition_of(self, query: Query, key: str) -> Partition:
        """Return the partition with a Dagster key of one of this catalogue's assets."""
        day, unit = parse_partition_key(key)
        return self.partition(query.name, day, unit)

    def parse(self, text: str) -> Partition:
        """Return the partition written ``catalogue/category/value_type/YYYY-MM-DD/unit``.

        The catalogue may be left out, and the last separator may be Dagster's ``|``.

        Raises:
            UnknownPartitionError: the text is not of that form, or names nothing known.
        """
        form = rf"(?:{self.name}/)?([^/]+/[^/]+)/(\d{{4}}-\d\d-\d\d)[/|](.+)"
        found = re.fullmatch(form, text)
        day = parse_day(found[2]) if found else None
        if found is None or day is None:
            message = (
                f"partition {text!r}: expected {self.name}/category/value_type/YYYY-MM-DD/unit"
            )
            raise UnknownPartitionError(message)
        return self.partition(found[1], day, found[3])

    def _why_too_old(self, day: date, latest_closed_day: date) -> str | None:
        oldest = self.oldest_retained_day(latest_closed_day)
        if day >= oldest:
            return None
        return f"{self.name} keeps its newest {self.retention_days} closed days, from {oldest} on"

    def _query(self, category: Category, value_type: ValueType) -> Query:
        first_days = (self.first_day, category.first_day, value_type.first_day)
        return Query(
            catalogue=self.name,
            category=category.name,
            value_type=value_type.name,
            category_type=category.type,
            column_type=value_type.type,
            first_day=max(day for day in first_days if day is not None),
            version=self.versions.get(f"{category.name}/{value_type.name}", 1),
            description=" ".join(t for t in (value_type.description, category.description) if t),
        )


@lru_cache(maxsize=64)  # a plan explains thousands of partitions at one watermark
def _oldest_retained_day(catalogue: Catalogue, latest_closed_day: date) -> date:
    newest_first = catalogue.days(catalogue.first_day, latest_closed_day)
    return min(islice(newest_first, catalogue.retention_days), default=catalogue.first_day)
