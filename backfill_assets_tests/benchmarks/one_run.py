"""One run over many days in a process of its own; prints what it committed and its peak memory."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from backfill_assets.core.partitions import partition_key
from backfill_assets.defs.location import build_definitions
from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.resources.run_requests import (
    DEFER_TAG,
    RANGE_END_TAG,
    RANGE_START_TAG,
    SENSOR_TAG,
    job_name,
)
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.resources import instances


def main() -> None:
    """Execute a run as the sensor asks for it."""
    asked = json.load(sys.stdin)
    os.environ[instances.URL_VARIABLE] = asked["url"]
    catalogue = work.a_catalogue(days=asked["days"], units=3, queries=4)
    store = LocalPartitionStore(Path(asked["store"]), [catalogue])
    store.prepare()
    project = Project(
        data_sets=[DataSet(catalogue, work.MadeUpSource())],
        store=store,
        clock=FixedClock(work.NOW),
    )
    job = (
        build_definitions(project).get_repository_def().get_job(job_name(catalogue, work.FIRST_DAY))
    )
    last = catalogue.latest_closed_day(work.NOW)
    tags = {
        RANGE_START_TAG: partition_key(work.FIRST_DAY, catalogue.unit_names[0]),
        RANGE_END_TAG: partition_key(last, catalogue.unit_names[-1]),
        SENSOR_TAG: "bench",
        DEFER_TAG: "true",
    }
    with instances.open_instance(Path(asked["home"])) as instance:
        assert job.execute_in_process(instance=instance, tags=tags).success
    found = {"committed": len(store.scan(catalogue).committed), "megabytes": peak_megabytes()}
    sys.stdout.write(json.dumps(found) + "\n")


def peak_megabytes() -> float:
    """Return the most memory that this process had; not getrusage, which also counts its parent."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
