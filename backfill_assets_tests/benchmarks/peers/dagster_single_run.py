"""Plain Dagster, ``BackfillPolicy.single_run()``: a range of days of some categories in one run."""

import json
import sys
import time
from pathlib import Path

import dagster as dg

from backfill_assets_tests.benchmarks.peers import plain_assets

WORK = json.load(sys.stdin)


def main() -> None:
    """Do the work, and say how long it took and over how many partitions."""
    make = plain_assets.events_only if WORK["events_only"] else plain_assets.category_in_one_run
    assets = [make(category) for category in WORK["categories"]]
    first_unit, *_, last_unit = plain_assets.CATALOGUE.unit_names
    tags = {
        "dagster/asset_partition_range_start": f"{WORK['first_day']}|{first_unit}",
        "dagster/asset_partition_range_end": f"{WORK['last_day']}|{last_unit}",
    }
    with plain_assets.instance(Path(WORK["home"]), WORK["dagster_url"]) as instance:
        began = time.perf_counter()
        result = dg.materialize(assets, instance=instance, tags=tags)
        seconds = time.perf_counter() - began
        assert result.success
        keys = {key for each in assets for key in each.keys}
        partitions = sum(len(instance.get_materialized_partitions(key)) for key in keys)
    print(json.dumps({"seconds": seconds, "partitions": partitions}))  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
