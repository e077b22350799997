"""In which order missing work is taken up, and how much one cycle takes of it.

Order is total: day descending, then query, then unit, in catalogue order. Every cycle begins with
the newest day that has work; where something blocked or a bound splits that day, the next cycle may
take older days of other queries before the rest of it, so that nothing starves.

A cycle is one run, so it is a rectangle: queries of one grid × a range of days × a range of units.
The bounds split work into cycles and change nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.core.errors import CatalogueError
from backfill_assets.core.partition_sets import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from backfill_assets.core.catalogue import Grid
    from backfill_assets.core.partitions import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much one cycle may do; None is no bound.

    Attributes:
        max_days: Distinct days that a cycle takes up.
        max_partitions: Partitions that a cycle takes up.
        max_query_seconds: Time in the source after which a cycle ends with the group in hand.
        max_files: Files after which a cycle ends with the group in hand.
    """

    max_days: int | None = None
    max_partitions: int | None = None
    max_query_seconds: float | None = None
    max_files: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            bound = getattr(self, name)
            if bound is not None and not bound > 0:
                message = f"{name} is {bound}: a cycle must be able to do something; give 1 or more"
                raise CatalogueError(message)


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one run takes up.

    Attributes:
        queries: The queries with work, of one grid, in catalogue order.
        first_day: The oldest day; inclusive.
        last_day: The newest day; inclusive.
        units: The range of units, in catalogue order.
        partitions: The work itself; nothing else in the rectangle around it is missing.
        cut_by: The bound that ended it, or None where the work or the order did.
    """

    queries: tuple[Query, ...]
    first_day: date
    last_day: date
    units: tuple[str, ...]
    partitions: PartitionSet
    cut_by: str | None

    def rectangle(self) -> PartitionSet:
        """Return all that the run may touch, work or not."""
        catalogue = self.partitions.catalogue
        mask = sum(catalogue.unit_bits[unit] for unit in self.units)
        days = list(catalogue.days(self.first_day, self.last_day))
        return PartitionSet.rectangle(catalogue, self.queries, days, mask)


def next_cycle(
    work: PartitionSet, blocked: PartitionSet, latest_closed_day: date, bounds: Bounds
) -> Cycle:
    """Return the first cycle of non-empty ``work``; its rectangle holds nothing blocked."""
    newest = work.days()[0]
    grid = next(g for g in work.catalogue.grids if _first_query(work, newest) in g.queries)
    work = work.only(grid.queries)
    clean = [
        q for q in grid.queries if work.mask(q.name, newest) and not blocked.mask(q.name, newest)
    ]
    limit = bounds.max_partitions
    if not clean:
        return _range_of_units(work, blocked, newest, limit)
    fitting = _fitting_queries(work, newest, clean, limit)
    if not fitting:
        return _range_of_units(work.only(clean[:1]), blocked, newest, limit)
    if len(fitting) < len(clean):
        return _cycle(work, fitting, [newest], "max_partitions")
    if newest == latest_closed_day:
        return _cycle(work, fitting, [newest], None)  # the newest closed day goes by itself
    return _range_of_days(work, blocked, grid, newest, bounds)


def _first_query(work: PartitionSet, day: date) -> Query:
    return next(q for q in work.catalogue.queries if work.mask(q.name, day))


def _fitting_queries(
    work: PartitionSet, day: date, queries: Sequence[Query], limit: int | None
) -> list[Query]:
    """Return the leading queries whose work on ``day`` is within ``limit`` partitions."""
    fitting: list[Query] = []
    total = 0
    for query in queries:
        total += work.mask(query.name, day).bit_count()
        if limit is not None and total > limit:
            break
        fitting.append(query)
    return fitting


def _range_of_units(
    work: PartitionSet, blocked: PartitionSet, day: date, limit: int | None
) -> Cycle:
    """Return a cycle of one query and one day, up to the first blocked unit or the limit."""
    query = _first_query(work, day)
    mask, stopper = work.mask(query.name, day), blocked.mask(query.name, day)
    units: list[str] = []
    taken, cut_by = 0, None
    for unit, bit in work.catalogue.unit_bits.items():
        if not units and not mask & bit:
            continue
        if stopper & bit:
            break
        if mask & bit:
            if limit is not None and taken.bit_count() == limit:
                cut_by = "max_partitions"
                break
            taken |= bit
        units.append(unit)
    partitions = PartitionSet(work.catalogue, {query.name: {day: taken}})
    return Cycle((query,), day, day, tuple(units), partitions, cut_by)


def _range_of_days(
    work: PartitionSet, blocked: PartitionSet, grid: Grid, newest: date, bounds: Bounds
) -> Cycle:
    """Return a cycle of whole days, newest first, until a bound or something blocked ends it."""
    usable = [q for q in grid.queries if not blocked.mask(q.name, newest)]
    barrier = max((d for d in blocked.only(usable).days() if d < newest), default=None)
    days: list[date] = []
    total, cut_by = 0, None
    for day in work.only(usable).days():
        if barrier is not None and day <= barrier:
            break
        total += sum(work.mask(q.name, day).bit_count() for q in usable)
        cut_by = _bound_passed(bounds, len(days) + 1, total)
        if cut_by is not None:
            break
        days.append(day)
    return _cycle(work, usable, days, cut_by)


def _bound_passed(bounds: Bounds, days: int, partitions: int) -> str | None:
    if bounds.max_days is not None and days > bounds.max_days:
        return "max_days"
    if bounds.max_partitions is not None and partitions > bounds.max_partitions:
        return "max_partitions"
    return None


def _cycle(
    work: PartitionSet, queries: Sequence[Query], days: Sequence[date], cut_by: str | None
) -> Cycle:
    catalogue = work.catalogue
    masks = {
        query.name: row
        for query in queries
        if (row := {day: mask for day in days if (mask := work.mask(query.name, day))})
    }
    with_work = tuple(query for query in queries if query.name in masks)
    return Cycle(
        with_work,
        days[-1],
        days[0],
        catalogue.unit_names,
        PartitionSet(catalogue, masks),
        cut_by,
    )
