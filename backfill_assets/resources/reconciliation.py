"""Telling Dagster about partitions that stand committed and that no event speaks of.

After a crash between commit and event, after files were adopted, after a wipe, or when Dagster's
database was thrown away. The event log is a display: this is never a source of work.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from backfill_assets.core.errors import CorruptPartitionError, UnknownPartitionError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.resources.event_log import materialized_partitions, report_outside_runs
from backfill_assets.resources.partition_io_manager import committed_group, committed_partition
from backfill_assets.resources.run_requests import asset_key

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Iterator

    import dagster as dg

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Partition, Query
    from backfill_assets.core.store import CommitRecord
    from backfill_assets.resources.event_log import CommittedPartition
    from backfill_assets.resources.project import Project


def unreported_partitions(instance: dg.DagsterInstance, committed: PartitionSet) -> PartitionSet:
    """Return the committed partitions that Dagster does not show as materialized."""
    catalogue = committed.catalogue
    told = PartitionSet.empty(catalogue)
    for query in catalogue.queries:
        told = told | shown_partitions(instance, catalogue, query)
    return committed - told


def shown_partitions(
    instance: dg.DagsterInstance, catalogue: Catalogue, query: Query
) -> PartitionSet:
    """Return the partitions of one query that Dagster shows as materialized."""
    return _known(catalogue, query, materialized_partitions(instance, asset_key(query)))


def report(
    project: Project,
    instance: dg.DagsterInstance,
    partitions: PartitionSet,
    log: logging.Logger,
    *,
    limit: int,
) -> int:
    """Report the newest ``limit`` of the given partitions; return how many were dealt with.

    A damaged file is named in the log and not reported; it keeps nothing else from being done.
    """
    chosen = list(islice(partitions, limit))
    by_query: dict[Query, list[CommittedPartition]] = {}
    for partition, record in _records(project, chosen, log):
        metadata: dict[str, str | int] = {"state": "found in the store", "rows": record.rows}
        told = committed_partition(project, partition, metadata, record.digest)
        by_query.setdefault(partition.query, []).append(told)
    for query, group in by_query.items():
        report_outside_runs(instance, committed_group(query, group))
    return len(chosen)


def _records(
    project: Project, partitions: Iterable[Partition], log: logging.Logger
) -> Iterator[tuple[Partition, CommitRecord]]:
    for partition in partitions:
        try:
            yield from project.store.records([partition]).items()
        except CorruptPartitionError as error:
            log.error("%s", error)


def _known(catalogue: Catalogue, query: Query, keys: Iterable[str]) -> PartitionSet:
    """Return the partitions of these keys that the catalogue knows."""
    known = []
    for key in keys:
        try:
            known.append(catalogue.partition_of(query, key))
        except UnknownPartitionError:
            continue  # of a unit that was removed since
    return PartitionSet.of(catalogue, known)
