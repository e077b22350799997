"""A lazy stream of partitions: computed newest first, in groups, while the IO manager commits them.

One source query serves all units, all value types and many days. Where it fails, its days are asked
for one by one, so that a day that cannot be computed does not keep the others from being committed.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backfill_assets.core.errors import (
    BackfillAssetsError,
    PartitionsRefusedError,
    SourceError,
    SourceNotReadyError,
)
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.source import FingerprintedSource
from backfill_assets.stores.splitting import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date

    import pyarrow as pa

    from backfill_assets.core.assignment import Assignment
    from backfill_assets.core.cycles import Bounds
    from backfill_assets.core.partitions import Partition, Query
    from backfill_assets.core.source import Source
    from backfill_assets.stores.publishing_log import RunClaims

# One flush serves a group: about a thousand files, if that takes no less and no more days than
# these, so that it is small enough to be held in memory whatever the length of the run.
GROUP_FILES = 1_000
LEAST_DAYS = 30
MOST_DAYS = 120

Group = list[tuple["Partition", "pa.Table"]]


@dataclass(slots=True, kw_only=True)
class PartitionStream:
    """What one run computes of one category.

    Attributes:
        claims: The run's, so that no two runs compute the same partition; None where no log is
            kept.
        queries: Queries of one category, in catalogue order.
        bounds: Where the run ends early; query seconds and files count here.
        asked_by_person: Whether what cannot be done now is an error: a person gets an answer, and
            the sensor's rectangles may lie over what is held or waits.
        timer: Gives seconds, for the time that the source takes.
        committed: What the IO manager has committed so far.
        waiting: Partitions whose source is not ready.
        busy: Partitions that other runs are at work on.
        found: Partitions that other runs have committed since this one began.
        failures: What the source or the store said, by the day that could not be committed whole.
        stopped_by: The bound that ended the stream, or None.
    """

    assignment: Assignment
    queries: Sequence[Query]
    source: Source[pa.Table]
    bounds: Bounds
    asked_by_person: bool = True
    claims: RunClaims | None = None
    timer: Callable[[], float] = time.monotonic
    committed: PartitionSet = field(init=False)
    waiting: PartitionSet = field(init=False)
    busy: PartitionSet = field(init=False)
    found: PartitionSet = field(init=False)
    failures: dict[date, BackfillAssetsError] = field(default_factory=dict)
    stopped_by: str | None = None
    is_consumed: bool = False
    _query_seconds: float = 0.0
    _files: int = 0
    _fingerprints: dict[date, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        empty = PartitionSet.empty(self.assignment.plan.catalogue)
        self.committed = self.waiting = self.busy = self.found = empty

    def groups(self) -> Iterator[Group]:
        """Yield groups to be committed, each before the next is asked for.

        What other runs are at work on is asked for once more in the end: they may be done by then,
        or dead.
        """
        self.is_consumed = True
        yield from self._groups_of(self.assignment.compute.only(self.queries))
        if self.busy and self.stopped_by is None:
            yield from self._groups_of(self.busy)

    def _groups_of(self, work: PartitionSet) -> Iterator[Group]:
        days = work.days()
        size = days_of_a_group(len(work), len(days))
        batches = deque(days[first : first + size] for first in range(0, len(days), size))
        while batches:
            self.stopped_by = self._bound_passed()
            if self.stopped_by is not None:
                return
            batch = batches.popleft()
            wanted = self._take(_of_days(work, batch))
            if not wanted:
                continue
            try:
                yield self._read(wanted, batch)
            except (SourceError, SourceNotReadyError) as error:
                if len(batch) > 1:
                    batches.extendleft([day] for day in reversed(batch))
                elif isinstance(error, SourceError):
                    self.note_failure(batch[0], error)
                else:
                    self.waiting = self.waiting | wanted

    def _take(self, wanted: PartitionSet) -> PartitionSet:
        """Claim partitions; return those that are this run's to compute."""
        if self.claims is None:
            return wanted
        taken = self.claims.take(wanted, again=wanted & self.assignment.plan.committed)
        self.busy = (self.busy - wanted) | taken.busy
        self.found = self.found | taken.committed
        return taken.granted

    def fingerprint(self, day: date) -> str | None:
        """Return what the source's fingerprint of a day was before its rows were read."""
        return self._fingerprints.get(day)

    def note_committed(self, partitions: Sequence[Partition]) -> None:
        """Remember what was made visible."""
        catalogue = self.assignment.plan.catalogue
        self.committed = self.committed | PartitionSet.of(catalogue, partitions)
        self._files += len(partitions)

    def note_failure(self, day: date, error: BackfillAssetsError) -> None:
        """Remember that not all of a day could be committed, and the first reason."""
        self.failures.setdefault(day, error)

    @property
    def failed(self) -> PartitionSet:
        """What could not be committed; the rest of `left` was not tried, or waits."""
        return _of_days(self.left, list(self.failures)) - self.waiting - self.busy

    @property
    def left(self) -> PartitionSet:
        """What was taken up and is not committed."""
        return self.assignment.compute.only(self.queries) - self.committed - self.found

    @property
    def stood(self) -> PartitionSet:
        """What was asked for and stood committed without this run's doing."""
        return self.assignment.skip.only(self.queries) | self.found

    def finish(self) -> None:
        """Fail where a run that did all it could still did not do all that it was asked for.

        Raises:
            SourceError: some days could not be committed whole.
            SourceNotReadyError: a person asked for partitions whose source is not ready.
            PartitionsRefusedError: a person asked for open or held partitions, or for some that
                another run is at work on.
        """
        if self.failures:
            days = ", ".join(str(day) for day in list(self.failures)[:5])
            first = next(iter(self.failures.values()))
            reasons = "; ".join([str(first), *getattr(first, "__notes__", [])][:5])
            message = (
                f"{len(self.failures)} days could not be committed whole ({days}), and the others "
                f"are committed. The first failure: {reasons}"
            )
            raise SourceError(message) from first
        if not self.asked_by_person:
            return
        if self.waiting:
            days = ", ".join(str(day) for day in self.waiting.days()[:5])
            message = (
                f"the source is not ready for {len(self.waiting)} partitions ({days}), and the "
                "others are committed; the sensor takes these up when it is"
            )
            raise SourceNotReadyError(message)
        refusal = self.assignment.refusal() or self._why_busy()
        if refusal is not None:
            raise PartitionsRefusedError(refusal)

    def _why_busy(self) -> str | None:
        if not self.busy:
            return None
        days = ", ".join(str(day) for day in self.busy.days()[:5])
        return (
            f"another run is at work on {len(self.busy)} of the partitions ({days}), and the "
            "others are committed; wait for it, and ask again if something is still missing"
        )

    def _read(self, wanted: PartitionSet, days: Sequence[date]) -> Group:
        catalogue = wanted.catalogue
        mask = 0
        for row in wanted.masks.values():
            for units in row.values():
                mask |= units
        value_types = [query.value_type for query in self.queries if query.name in wanted.masks]
        began = self.timer()
        if catalogue.look_back_days and isinstance(self.source, FingerprintedSource):
            # Before the rows: what changes in between is noticed later, never missed.
            self._fingerprints.update(self.source.fingerprints(days))
        try:
            frame = self.source.read(
                self.queries[0].category, value_types, days, list(wanted.units(mask))
            )
        finally:
            self._query_seconds += self.timer() - began  # a failing query takes time as well
        queries = [q for q in catalogue.queries if q in self.queries and q.name in wanted.masks]
        return list(split(frame, queries, wanted))

    def _bound_passed(self) -> str | None:
        limit_seconds, limit_files = self.bounds.max_query_seconds, self.bounds.max_files
        if limit_seconds is not None and self._query_seconds >= limit_seconds:
            return "max_query_seconds"
        if limit_files is not None and self._files >= limit_files:
            return "max_files"
        return None


def days_of_a_group(partitions: int, days: int) -> int:
    """Return how many days one query reads, where so many partitions are spread over so many."""
    wanted = round(GROUP_FILES * days / max(partitions, 1))
    return min(max(wanted, LEAST_DAYS), MOST_DAYS)


def _of_days(partitions: PartitionSet, days: Sequence[date]) -> PartitionSet:
    masks = {
        name: kept
        for name, row in partitions.masks.items()
        if (kept := {day: row[day] for day in days if day in row})
    }
    return PartitionSet(partitions.catalogue, masks)
