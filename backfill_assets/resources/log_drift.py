"""How far the log of attempts has drifted from the files, and mending it; the files are right.

A log that was restored from a backup has runs at work that ended long ago, and the digests of files
that were replaced since. Neither makes anything be made again, or kept from being made: it is told,
and mended, so that the trail of a partition says what is so.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from backfill_assets.core.agreement import Agreement, Fault, Finding
from backfill_assets.core.errors import CorruptPartitionError
from backfill_assets.stores.publishing_log import Completion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import CommitRecord
    from backfill_assets.resources.project import Project
    from backfill_assets.stores.publishing_log import PublishingLog, Unfinished

# A commit record costs 75 µs to read, a row of the log 10 µs: two seconds in all, which a check
# that runs whenever the files have changed may take. More than a year of the example; a larger
# catalogue is compared as a whole by `backfill-assets reconcile`.
NEWEST = 20_000


@dataclass(frozen=True, slots=True)
class Restated:
    """A partition whose file is not what the log says was published.

    Attributes:
        logged: What the log says.
        digest: Of the file.
    """

    partition: Partition
    logged: Completion
    digest: str

    def __str__(self) -> str:
        return f"{self.partition}: digest {self.digest}, in the log {self.logged.digest}"


def newest_drift(project: Project, catalogue: Catalogue) -> dict[str, list[str]]:
    """Return where the log and the newest files disagree, by kind.

    Every attempt that is at work is looked at; digests of the newest 20,000 committed partitions.
    """
    log = project.publishing_log
    if log is None:
        return {}
    committed = project.plan(catalogue).committed
    newest = list(islice(committed, NEWEST))
    return {
        str(Fault.AT_WORK): [
            _named(partition, run) for partition, run in left_at_work(project, committed).items()
        ],
        str(Fault.OTHER_DIGEST): [str(one) for one in _restated(project, log, newest)],
    }


def unlogged(project: Project, catalogue: Catalogue) -> dict[str, int]:
    """Return, of the newest committed partitions, how many were compared and have no completed row.

    No disagreement: files are adopted, and a log may be thrown away. Nothing without a log.
    """
    if project.publishing_log is None:
        return {}
    newest = list(islice(project.plan(catalogue).committed, NEWEST))
    known = project.publishing_log.completions(newest)
    return {
        "newest partitions compared with the log": len(newest),
        "of these without a completed attempt in the log": len(newest) - len(known),
    }


def reconcile_log(project: Project, catalogue: Catalogue, *, repair: bool = False) -> Agreement:
    """Compare the log of attempts with every committed file, and mend it if asked to.

    Only the log is changed, never files; what runs are at work on is left alone.
    """
    agreement = Agreement()
    log = project.publishing_log
    if log is None:
        return agreement
    committed = project.plan(catalogue).committed
    for partition, run in left_at_work(project, committed).items():
        agreement.findings.append(Finding(Fault.AT_WORK, _named(partition, run)))
    if repair:
        agreement.repairs += [
            f"{partition}: no run is at work on it"
            for partition in end_dead_runs(project, committed)
        ]
    agreement.unlogged = 0
    for some in _slices(committed):
        agreement.unlogged += len(some) - len(log.completions(some))
        restated = _restated(project, log, some)
        agreement.findings += [Finding(Fault.OTHER_DIGEST, str(one)) for one in restated]
        if repair:
            agreement.repairs += [f"{p}: the log has its digest" for p in _correct(log, restated)]
    return agreement


def left_at_work(project: Project, stands: PartitionSet) -> dict[Partition, str]:
    """Return the standing partitions that the log has a dead run at work on, each with the run."""
    log = project.publishing_log
    if log is None:
        return {}
    claimed = _at_work(log, stands)
    dead = {run for run in claimed.values() if not project.store.is_alive(run)}
    if not dead:
        return {}
    # Once more: one that lived when the log was read may have said how it ended, and then ended.
    return {p: run for p, run in _at_work(log, stands).items() if run in dead}


def end_dead_runs(project: Project, stands: PartitionSet) -> list[Partition]:
    """Write down that partitions stand which dead runs were at work on; return those.

    The runs are ended first, as whoever wanted their work would do; so it is for runs that were
    ended before. The trail keeps how each attempt ended, and that its file stands all the same.
    """
    log = project.publishing_log
    if log is None:
        return []
    if not _unfinished(log, stands):
        return []  # as nearly always: one read
    for run in sorted(set(left_at_work(project, stands).values())):
        project.end_run(run)
    return log.forget(one.partition for one in _unfinished(log, stands) if not one.is_at_work)


def _at_work(log: PublishingLog, stands: PartitionSet) -> dict[Partition, str]:
    """Return the standing partitions that the log has a run at work on, each with the run."""
    return {one.partition: one.run_id for one in _unfinished(log, stands) if one.is_at_work}


def _unfinished(log: PublishingLog, stands: PartitionSet) -> list[Unfinished]:
    return [one for one in log.unfinished(stands.catalogue) if one.partition in stands]


def _restated(
    project: Project, log: PublishingLog, partitions: Sequence[Partition]
) -> list[Restated]:
    """Return the partitions whose file and whose row have other digests."""
    logged = log.completions(partitions)
    known = {partition: one for partition, one in logged.items() if one.digest is not None}
    found = {
        partition: record.digest
        for partition, record in _records(project, known)
        if record.digest != known[partition].digest
    }
    # Once more: a run claims a partition before it replaces the file. Where the same attempt stands
    # completed before and after the file was read, nothing was in between.
    still = log.completions(found) if found else {}
    return [
        Restated(p, known[p], digest) for p, digest in found.items() if still.get(p) == known[p]
    ]


def _correct(log: PublishingLog, restated: Collection[Restated]) -> list[Partition]:
    found = {one.partition: Completion(one.logged.attempt, one.digest) for one in restated}
    return log.correct(found, reason="its file has other content")


def _records(
    project: Project, partitions: Mapping[Partition, object]
) -> Iterator[tuple[Partition, CommitRecord]]:
    """Yield the commit records; a damaged file is left to the checks that name it."""
    for partition in partitions:
        try:
            yield from project.store.records([partition]).items()
        except CorruptPartitionError:
            continue


def _slices(partitions: PartitionSet) -> Iterator[list[Partition]]:
    """Yield the partitions some at a time: memory does not grow with the catalogue."""
    left = iter(partitions)
    while some := list(islice(left, NEWEST)):
        yield some


def _named(partition: Partition, run: str) -> str:
    return f"{partition}: run {run}"
