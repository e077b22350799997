"""Sets of partitions as integers: one unit bitmask per (query, day).

Difference, union and count are integer operations, so a million partitions diff in a fraction of a
second. A set belongs to one catalogue, whose unit order gives the bits their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.core.partitions import Partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query

Masks = dict[str, dict["date", int]]  # query name → day → mask of units; no empty masks


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """An immutable set of partitions of one catalogue.

    Attributes:
        masks: The units by query name and day. Zero masks and empty days are left out.
    """

    catalogue: Catalogue
    masks: Mapping[str, Mapping[date, int]]

    @classmethod
    def empty(cls, catalogue: Catalogue) -> PartitionSet:
        """Return the set without partitions."""
        return cls(catalogue, {})

    @classmethod
    def of(cls, catalogue: Catalogue, partitions: Iterable[Partition]) -> PartitionSet:
        """Return the set of the given partitions."""
        masks: Masks = {}
        for partition in partitions:
            days = masks.setdefault(partition.query.name, {})
            days[partition.day] = days.get(partition.day, 0) | catalogue.unit_bits[partition.unit]
        return cls(catalogue, masks)

    @classmethod
    def rectangle(
        cls, catalogue: Catalogue, queries: Iterable[Query], days: Iterable[date], units: int
    ) -> PartitionSet:
        """Return queries × days × the units of a mask."""
        row = dict.fromkeys(days, units) if units else {}
        return cls(catalogue, {query.name: row for query in queries} if row else {})

    def __sub__(self, other: PartitionSet) -> PartitionSet:
        masks: dict[str, Mapping[date, int]] = {}
        for name, days in self.masks.items():
            taken = other.masks.get(name)
            kept = days if not taken else _difference(days, taken)
            if kept:
                masks[name] = kept
        return PartitionSet(self.catalogue, masks)

    def __or__(self, other: PartitionSet) -> PartitionSet:
        masks: Masks = {name: dict(days) for name, days in self.masks.items()}
        for name, days in other.masks.items():
            mine = masks.setdefault(name, {})
            for day, mask in days.items():
                mine[day] = mine.get(day, 0) | mask
        return PartitionSet(self.catalogue, masks)

    def __and__(self, other: PartitionSet) -> PartitionSet:
        masks: dict[str, Mapping[date, int]] = {}
        for name, days in self.masks.items():
            if kept := _intersection(days, other.masks.get(name, {})):
                masks[name] = kept
        return PartitionSet(self.catalogue, masks)

    def __len__(self) -> int:
        return sum(mask.bit_count() for days in self.masks.values() for mask in days.values())

    def __bool__(self) -> bool:
        return bool(self.masks)

    def __contains__(self, partition: Partition) -> bool:
        mask = self.mask(partition.query.name, partition.day)
        return bool(mask & self.catalogue.unit_bits.get(partition.unit, 0))

    def __iter__(self) -> Iterator[Partition]:
        """Yield in plan order: day descending, then query, then unit, in catalogue order."""
        queries = [q for q in self.catalogue.queries if q.name in self.masks]
        for day in self.days():
            for query in queries:
                for unit in self.units(self.mask(query.name, day)):
                    yield Partition(query, day, unit)

    def mask(self, query_name: str, day: date) -> int:
        """Return the units of one query and day."""
        return self.masks.get(query_name, {}).get(day, 0)

    def units(self, mask: int) -> Iterator[str]:
        """Yield the units of a mask in catalogue order."""
        names = self.catalogue.unit_names
        while mask:
            lowest = mask & -mask
            yield names[lowest.bit_length() - 1]
            mask ^= lowest

    def days(self) -> list[date]:
        """Return the days that have a partition, newest first."""
        return sorted({day for days in self.masks.values() for day in days}, reverse=True)

    def only(self, queries: Iterable[Query]) -> PartitionSet:
        """Return the partitions of the given queries."""
        names = [query.name for query in queries]
        return PartitionSet(self.catalogue, {n: self.masks[n] for n in names if n in self.masks})

    def count_of(self, query: Query) -> int:
        """Return how many partitions of one query are in the set."""
        return sum(mask.bit_count() for mask in self.masks.get(query.name, {}).values())


# What is the same on both sides, as nearly always, is told at a glance, and shared.
def _intersection(days: Mapping[date, int], others: Mapping[date, int]) -> Mapping[date, int]:
    if days is others or days == others:
        return others
    return {day: both for day, mask in days.items() if (both := mask & others.get(day, 0))}


def _difference(days: Mapping[date, int], taken: Mapping[date, int]) -> Mapping[date, int]:
    if days is taken or days == taken:
        return {}
    return {day: left for day, mask in days.items() if (left := mask & ~taken.get(day, 0))}
