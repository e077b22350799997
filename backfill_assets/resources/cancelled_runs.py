"""Runs that a person cancelled: what they were at is not launched again in the next breath.

Missing work stays missing, and a cancelled run is no wish to have it never: it is taken up again
after a pause. To stop partitions for good, hold them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.resources.run_requests import in_flight

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partition_sets import PartitionSet

PAUSE = timedelta(minutes=10)  # enough to see what happens, and to hold what should not come back
STOPPED_TAG = "backfill_assets/stopped_with_the_project"  # of runs that Ctrl-C ended: no pause


def paused_partitions(
    instance: dg.DagsterInstance, catalogue: Catalogue, now: datetime
) -> PartitionSet:
    """Return what runs were asked for that a person cancelled less than a pause ago.

    Args:
        now: The real instant.
    """
    cancelled = instance.get_runs(
        dg.RunsFilter(statuses=[dg.DagsterRunStatus.CANCELED], updated_after=now - PAUSE)
    )
    return in_flight(catalogue, (run for run in cancelled if STOPPED_TAG not in run.tags))
