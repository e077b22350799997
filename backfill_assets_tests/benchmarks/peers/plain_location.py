"""A code location of plain Dagster that asks for one run for each of a few partitions."""

import os
from collections.abc import Iterator

import dagster as dg

from backfill_assets_tests.benchmarks.peers.plain_assets import (
    CATALOGUE,
    asset_key,
    query_in_one_run_each,
)

RUNS = int(os.environ["PEER_RUNS"])
ASSETS = [query_in_one_run_each(q.category, q.value_type) for q in CATALOGUE.queries]
JOB = dg.define_asset_job("partitions", selection=ASSETS)


@dg.sensor(job=JOB, default_status=dg.DefaultSensorStatus.RUNNING)
def one_run_each() -> Iterator[dg.RunRequest]:
    """Ask for the partitions of one day; a run key is asked for once."""
    partitions = [(query, unit) for query in CATALOGUE.queries for unit in CATALOGUE.unit_names]
    for query, unit in partitions[:RUNS]:
        yield dg.RunRequest(
            run_key=f"{query.name}/{unit}",
            partition_key=dg.MultiPartitionKey({"date": "2013-07-01", "unit": unit}),
            asset_selection=[asset_key(query.category, query.value_type)],
        )


defs = dg.Definitions(assets=ASSETS, jobs=[JOB], sensors=[one_run_each])
