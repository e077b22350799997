"""Plain Dagster, ``BackfillPolicy.single_run()``: a range of days of some categories in one run."""

import json
import sys
import time
from pathlib import Path

import dagster as dg

from backfill_assets_tests.benchmarks.peers import plain_assets

WORK = json.load(sys.stdin)


def main() -> None:
    """Do the work after a partition to warm up; say how long it took, over how many partitions."""
    make = plain_assets.events_only if WORK["events_only"] else plain_assets.category_in_one_run
    assets = [make(category) for category in WORK["categories"]]
    units = plain_assets.CATALOGUE.unit_names
    with plain_assets.instance(Path(WORK["home"]), WORK["dagster_url"]) as instance:
        _run(assets[:1], instance, f"2013-12-31|{units[0]}", f"2013-12-31|{units[0]}")
        began = time.perf_counter()
        _run(assets, instance, f"{WORK['first_day']}|{units[0]}", f"{WORK['last_day']}|{units[-1]}")
        seconds = time.perf_counter() - began
        keys = {key for each in assets for key in each.keys}
        shown = {(key, p) for key in keys for p in instance.get_materialized_partitions(key)}
    partitions = sum(1 for _, partition in shown if partition < "2013-12-31")
    print(json.dumps({"seconds": seconds, "partitions": partitions}))  # noqa: T201 - the answer


def _run(
    assets: list[dg.AssetsDefinition], instance: dg.DagsterInstance, first: str, last: str
) -> None:
    tags = {
        "dagster/asset_partition_range_start": first,
        "dagster/asset_partition_range_end": last,
    }
    assert dg.materialize(assets, instance=instance, tags=tags).success


if __name__ == "__main__":
    main()
