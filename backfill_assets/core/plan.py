"""What is expected, present and missing at one instant: the state of every partition, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from backfill_assets.core.cycles import next_cycle
from backfill_assets.core.partition_sets import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import date, datetime

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.cycles import Bounds, Cycle
    from backfill_assets.core.partitions import Partition


class State(StrEnum):
    """The five states of a partition; the first that applies."""

    NOT_EXPECTED = "not expected"
    OPEN = "open"
    HELD = "held"
    COMMITTED = "committed"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every partition's state at one instant, as a value that can be printed.

    Attributes:
        latest_closed_day: The watermark as a day.
        expected: What should exist and may: its day is closed.
        committed: Expected and present.
        held: Withdrawn by a person or a saga; never work.
        missing: Expected, neither present nor held.
        in_flight: Missing or stale, and taken up by an unfinished run.
        backing_off: Missing or stale, and not to be tried again yet: it failed lately.
        stale: Committed, and no longer what the source says, or somebody wishes it made again.
        restating: Stale, and to be made again; it stands as it is until then.
        unexpected: Present, and not expected however late it is; a file of a day that is open
            again, since the lateness was raised, is not among them.
    """

    catalogue: Catalogue
    now: datetime
    latest_closed_day: date
    expected: PartitionSet
    committed: PartitionSet
    held: PartitionSet
    missing: PartitionSet
    in_flight: PartitionSet
    backing_off: PartitionSet
    stale: PartitionSet
    restating: PartitionSet
    unexpected: PartitionSet

    @property
    def blocked(self) -> PartitionSet:
        """Missing, but not to be taken up now."""
        return self.missing & (self.in_flight | self.backing_off)

    @property
    def work(self) -> PartitionSet:
        """What could be taken up now."""
        return self.missing - self.blocked

    def cycles(self, bounds: Bounds) -> Iterator[Cycle]:
        """Yield the cycles that would complete the missing work, the first one first."""
        yield from _cycles(self.work, self.blocked, self.latest_closed_day, bounds)

    def restating_cycles(self, bounds: Bounds) -> Iterator[Cycle]:
        """Yield the cycles that would make everything stale again, newest first."""
        work = self.restating - self.in_flight - self.backing_off
        blocked = self.missing | (self.stale - work)
        yield from _cycles(work, blocked, self.latest_closed_day, bounds)

    def state(self, partition: Partition) -> State:
        """Return the state of one partition."""
        return self.explain(partition)[0]

    def explain(self, partition: Partition) -> tuple[State, str]:
        """Return the state of one partition and why it is in it."""
        refusal = self.catalogue.why_not_expected(partition, self.latest_closed_day)
        if refusal is not None:
            return State.NOT_EXPECTED, refusal
        closes_at = self.catalogue.closing.closes_at(partition.day)
        if self.now < closes_at:
            local = closes_at.astimezone(self.catalogue.closing.zone)
            return State.OPEN, f"its day closes at {local.isoformat()}"
        if partition in self.held:
            return State.HELD, "a hold stands for it"
        if partition in self.committed:
            return State.COMMITTED, self._how_committed(partition)
        return State.MISSING, self._why_missing(partition)

    def _how_committed(self, partition: Partition) -> str:
        if partition in self.restating:
            return "its file stands in the store; it is stale, and will be made again"
        if partition in self.stale:
            return "its file stands in the store; it is stale: the source has changed since"
        return "its file stands in the store"

    def _why_missing(self, partition: Partition) -> str:
        if partition in self.in_flight:
            return "a run that takes it up is in flight"
        if partition in self.backing_off:
            return "it failed lately, or its run was cancelled, and it backs off"
        return "no committed file; the next cycles take it up"


def _cycles(
    work: PartitionSet, blocked: PartitionSet, latest_closed_day: date, bounds: Bounds
) -> Iterator[Cycle]:
    while work:
        cycle = next_cycle(work, blocked, latest_closed_day, bounds)
        if not cycle.partitions:
            message = "a cycle takes nothing up although work is left; this is a fault of ours"
            raise AssertionError(message)
        yield cycle
        work = work - cycle.partitions
        blocked = blocked | cycle.partitions


@lru_cache(maxsize=16)  # the same until another day closes
def expected_partitions(catalogue: Catalogue, latest_closed_day: date) -> PartitionSet:
    """Return every partition that should exist and whose day is closed."""
    return _expected_until(catalogue, latest_closed_day)


def _expected_until(catalogue: Catalogue, latest_closed_day: date) -> PartitionSet:
    oldest = catalogue.oldest_retained_day(latest_closed_day)
    return _expected_on(catalogue, catalogue.days(oldest, latest_closed_day))


def _expected_later(catalogue: Catalogue, present: PartitionSet, latest: date) -> PartitionSet:
    """Return what will be expected of the open days that have a file already."""
    # Day by day: one file of a far day must not cost a walk through all the days before it.
    early = [day for day in present.days() if day > latest]
    return _expected_on(catalogue, (d for day in early for d in catalogue.days(day, day)))


def _expected_on(catalogue: Catalogue, days: Iterable[date]) -> PartitionSet:
    """Return what is expected of some of the catalogue's days, however late it is."""
    open_units = {day: mask for day in days if (mask := catalogue.open_units(day))}
    masks: dict[str, dict[date, int]] = {}
    for grid in catalogue.grids:
        row = {day: mask for day, mask in open_units.items() if day >= grid.first_day}
        if row:
            masks |= {query.name: row for query in grid.queries}
    return PartitionSet(catalogue, masks)


def make_plan(
    catalogue: Catalogue,
    *,
    present: PartitionSet,
    held: PartitionSet,
    in_flight: PartitionSet,
    now: datetime,
    backing_off: PartitionSet | None = None,
    wished: PartitionSet | None = None,
    changed: PartitionSet | None = None,
) -> Plan:
    """Compute what is missing at ``now``, which must be aware, from what stands in the store.

    Args:
        wished: What somebody wishes to be made again.
        changed: Of which the source says something else by now.
    """
    latest = catalogue.latest_closed_day(now)
    expected = expected_partitions(catalogue, latest)
    held_now = held & expected
    committed = (present & expected) - held_now
    early_or_unexpected = present - expected
    missing = expected - committed - held_now
    nothing = PartitionSet.empty(catalogue)
    restating = committed & (wished or nothing)
    stale = restating | (committed & (changed or nothing))
    if catalogue.restates_changed:
        restating = stale
    return Plan(
        catalogue=catalogue,
        now=now,
        latest_closed_day=latest,
        expected=expected,
        committed=committed,
        held=held_now,
        missing=missing,
        in_flight=(missing | stale) & in_flight,
        backing_off=(missing | stale) & (backing_off or nothing),
        stale=stale,
        restating=restating,
        unexpected=early_or_unexpected - _expected_later(catalogue, early_or_unexpected, latest),
    )
