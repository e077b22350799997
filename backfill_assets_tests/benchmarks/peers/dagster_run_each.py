"""Plain Dagster, a run for each partition: its daemon, its launcher, its executor, as they come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg

from backfill_assets_tests.benchmarks.peers.plain_assets import instance as plain_instance

WORK = json.load(sys.stdin)
LOCATION = "backfill_assets_tests.benchmarks.peers.plain_location"
LONGEST_SECONDS = 600


def main() -> None:
    """Let the daemon do all runs; say how long it took, from the first request to the last end."""
    home = Path(WORK["home"])
    with plain_instance(home, WORK["dagster_url"]) as instance:
        daemon = subprocess.Popen(
            [Path(sys.executable).with_name("dagster-daemon"), "run", "-m", LOCATION],
            env=os.environ | {"DAGSTER_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            records = _wait(instance, int(os.environ["PEER_RUNS"]))
        finally:
            daemon.send_signal(signal.SIGINT)
            daemon.wait()
    began = min(record.create_timestamp.timestamp() for record in records)
    ended = max(record.end_time for record in records)
    print(json.dumps({"seconds": ended - began, "runs": len(records)}))  # noqa: T201 - the answer


def _wait(instance: dg.DagsterInstance, count: int) -> list[dg.RunRecord]:
    done = dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS])
    deadline = time.monotonic() + LONGEST_SECONDS
    while len(records := instance.get_run_records(done)) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} runs ended well"
        time.sleep(0.5)
    return list(records)


if __name__ == "__main__":
    main()
