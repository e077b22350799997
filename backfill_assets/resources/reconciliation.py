"""Telling Dagster about partitions that stand committed and that no event speaks of.

After a crash between commit and event, after files were adopted, after a wipe, or when Dagster's
database was thrown away. The event log is a display: this is never a source of work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.resources.event_log import materialized_partitions, report_outside_runs
from backfill_assets.resources.partition_io_manager import committed_group, committed_partition
from backfill_assets.resources.run_requests import asset_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    import dagster as dg

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query
    from backfill_assets.resources.project import Project


def unreported_partitions(instance: dg.DagsterInstance, committed: PartitionSet) -> PartitionSet:
    """Return the committed partitions that Dagster does not show as materialized."""
    catalogue = committed.catalogue
    told = PartitionSet.empty(catalogue)
    for query in catalogue.queries:
        keys = materialized_partitions(instance, asset_key(query))
        told = told | _known(catalogue, query, keys)
    return committed - told


def report(
    project: Project, instance: dg.DagsterInstance, partitions: PartitionSet, *, limit: int
) -> int:
    """Report the newest ``limit`` of the given partitions; return how many were reported."""
    count = 0
    for query in partitions.catalogue.queries:
        chosen = list(partitions.only([query]))[: limit - count]
        records = project.store.records(chosen)
        told = [
            committed_partition(
                project, p, {"state": "committed, found in the store", "rows": r.rows}, r.digest
            )
            for p, r in records.items()
        ]
        if told:
            report_outside_runs(instance, committed_group(query, told))
            count += len(told)
    return count


def _known(catalogue: Catalogue, query: Query, keys: Iterable[str]) -> PartitionSet:
    """Return the partitions of these keys that the catalogue knows."""
    known = []
    for key in keys:
        try:
            known.append(catalogue.partition_of(query, key))
        except UnknownPartitionError:
            continue  # of a unit that was removed since
    return PartitionSet.of(catalogue, known)
