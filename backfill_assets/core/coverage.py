"""How complete a catalogue is: counts by query, unit and day, and where the holes are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from backfill_assets.core.partition_sets import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date, datetime

    from backfill_assets.core.plan import Plan


@dataclass(frozen=True, slots=True)
class Counts:
    """How many partitions of some part of a catalogue are in which state.

    Attributes:
        expected: Closed and expected: committed + missing + held.
        backing_off: Of the missing ones, those that failed lately and wait.
        stale: Of the committed ones, those that will be made again.
        unexpected: Present and not expected; counted in none of the others.
    """

    expected: int
    committed: int
    missing: int
    backing_off: int
    held: int
    stale: int
    unexpected: int

    @property
    def completeness(self) -> float:
        """Committed of expected, 0 to 1; 1 where nothing is expected."""
        return self.committed / self.expected if self.expected else 1.0


@dataclass(frozen=True, slots=True)
class DayCoverage:
    """How complete one day is, over all queries and units."""

    expected: int
    committed: int
    held: int


class Coverage:
    """A plan, counted."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @property
    def total(self) -> Counts:
        """The whole catalogue."""
        return self._counts(len)

    def by_query(self) -> dict[str, Counts]:
        """Return the counts of each query, in catalogue order."""
        return {
            query.name: self._counts(partial(PartitionSet.count_of, query=query))
            for query in self.plan.catalogue.queries
        }

    def by_unit(self) -> dict[str, Counts]:
        """Return the counts of each unit, in catalogue order."""
        bits = self.plan.catalogue.unit_bits
        return {unit: self._counts(partial(_count_of_unit, bit=bit)) for unit, bit in bits.items()}

    def by_day(self) -> dict[date, DayCoverage]:
        """Return the coverage of each expected day, newest first."""
        plan = self.plan
        expected, committed, held = map(_count_by_day, (plan.expected, plan.committed, plan.held))
        return {d: DayCoverage(expected[d], committed[d], held[d]) for d in plan.expected.days()}

    @property
    def oldest_hole(self) -> date | None:
        """The oldest day of which something is missing, or None."""
        days = self.plan.missing.days()
        return days[-1] if days else None

    @property
    def complete_until(self) -> date | None:
        """The newest day up to which, from the first on, nothing is missing; None where none is."""
        hole = self.oldest_hole
        days = self.plan.expected.days()
        if hole is None:
            return days[0] if days else None
        return next((day for day in days if day < hole), None)

    @property
    def next_closing(self) -> tuple[date, datetime] | None:
        """The oldest open day and the instant at which it closes; None after the last day."""
        catalogue = self.plan.catalogue
        first_open = catalogue.first_open_day(self.plan.now)
        if first_open is None:
            return None
        return first_open, catalogue.closing.closes_at(first_open)

    def _counts(self, count: Callable[[PartitionSet], int]) -> Counts:
        plan = self.plan
        return Counts(
            expected=count(plan.expected),
            committed=count(plan.committed),
            missing=count(plan.missing),
            backing_off=count(plan.backing_off & plan.missing),
            held=count(plan.held),
            stale=count(plan.stale),
            unexpected=count(plan.unexpected),
        )


def _count_of_unit(partitions: PartitionSet, bit: int) -> int:
    return sum(bool(mask & bit) for days in partitions.masks.values() for mask in days.values())


def _count_by_day(partitions: PartitionSet) -> Counter[date]:
    counts: Counter[date] = Counter()
    for days in partitions.masks.values():
        for day, mask in days.items():
            counts[day] += mask.bit_count()
    return counts
