"""Runs that Dagster believes in and that are dead: found by the lock of their attempt.

After a ``kill -9`` Dagster leaves a run STARTED for good: its default launcher has no health check.
One that was created and whose creator was killed, or lost the database, before it was queued stays
NOT_STARTED for good.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.store import PartitionStore
    from backfill_assets.resources.project import Project

from backfill_assets.resources.run_requests import UNFINISHED, coverage_job_name, run_queries

# A run opens its attempt when its first step begins: a few seconds after it is STARTED. Before that
# it waits for its process, and before that for whoever created it to put it into the queue.
GRACE = timedelta(seconds=60)


def unfinished_runs(
    instance: dg.DagsterInstance, catalogues: Sequence[Catalogue]
) -> list[dg.RunRecord]:
    """Return the runs, whoever launched them, that work on partitions: each holds an attempt."""
    return [
        record
        for record in every_unfinished_run(instance)
        if any(_works_on(catalogue, record.dagster_run) for catalogue in catalogues)
    ]


def every_unfinished_run(instance: dg.DagsterInstance) -> Sequence[dg.RunRecord]:
    """Return all runs that have not ended, also of assets that have nothing to do with us.

    A dead one of these is known to be dead only where its code server is gone: it holds no attempt.
    """
    return instance.get_run_records(dg.RunsFilter(statuses=list(UNFINISHED)))


def fail_abandoned_runs(
    instance: dg.DagsterInstance,
    project: Project,
    records: Sequence[dg.RunRecord],
    *,
    now: datetime,
    grace: timedelta = GRACE,
) -> list[str]:
    """Report the dead among unfinished runs as failed, and return their ids.

    Their attempts are revoked first, so that one that is not dead after all publishes nothing more.

    Args:
        now: The real instant.
        grace: A run that moved on later than this before ``now`` is left alone.
    """
    dead = [r for r in records if _is_abandoned(r, project.store, now - grace)]
    for record in dead:
        run = record.dagster_run
        project.end_run(run.run_id)
        instance.report_run_failed(
            run,
            "No process holds this run's attempt: it was killed, or never came up. What it had "
            "committed stands, and the sensor takes up the rest.",
        )
    return [record.dagster_run.run_id for record in dead]


def _works_on(catalogue: Catalogue, run: dg.DagsterRun) -> bool:
    return run.job_name == coverage_job_name(catalogue) or bool(run_queries(catalogue, run))


def _is_abandoned(record: dg.RunRecord, store: PartitionStore[object], before: datetime) -> bool:
    if record.dagster_run.status is dg.DagsterRunStatus.QUEUED:
        return False  # the daemon, or the next one, launches it
    if record.start_time is None:
        since = record.update_timestamp
    else:
        since = datetime.fromtimestamp(record.start_time, UTC)
    return since <= before and not store.is_alive(record.dagster_run.run_id)
