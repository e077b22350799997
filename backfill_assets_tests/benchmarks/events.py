"""Dagster's event log: what it costs to report a partition, beside Dagster's automatic events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.resources.event_log import (
    CommittedGroup,
    CommittedPartition,
    report_outside_runs,
)
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.benchmarks.measuring import Figure, each, faster, in_turns
from backfill_assets_tests.benchmarks.plain_dagster import BATCHED, single_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets_tests.benchmarks.bench import Bench

DAYS = 30  # of a group: 90 partitions of each asset, as the product commits them


def run(bench: Bench) -> list[Figure]:
    """Compare on a year of four assets, and on half a month with Dagster's own events."""
    catalogue = work.a_catalogue(days=30 if bench.small else 360, units=3, queries=4)
    groups = list(committed_groups(catalogue))
    partitions = sum(len(group.partitions) for group in groups)
    last_day = "2013-01-02" if bench.small else "2013-01-16"
    with bench.dagster(bench.workshop.create()) as instance:

        def product() -> None:
            for group in groups:
                report_outside_runs(instance, group)

        costs: dict[str, list[float]] = {"one by one": [], "batched": []}

        def plainly(kind: str, variables: dict[str, str]) -> float:
            found = single_run(bench, ["carrier"], last_day, variables, events_only=True)
            costs[kind].append(1e3 * found.seconds / found.partitions)
            return found.seconds

        seconds = in_turns(
            {
                "product": product,
                "one by one": lambda: plainly("one by one", {}),
                "batched": lambda: plainly("batched", BATCHED),
            },
            rounds=1 if bench.small else 3,
        )
    ours = each(seconds["product"], partitions, factor=1e3)
    names = {
        "one by one": ("Dagster's automatic events, as it comes", faster(15)),
        "batched": ("the same with DAGSTER_EVENT_BATCH_SIZE=1000", faster(6)),
    }
    return [
        Figure(
            what="telling Dagster about a partition",
            unit="ms a partition",
            product=ours,
            against=against,
            other=costs[kind],
            goal=goal,
            note=f"over {partitions:,} partitions; Dagster's own, planned and done, over 192",
        )
        for kind, (against, goal) in names.items()
    ]


def committed_groups(catalogue: Catalogue) -> Iterator[CommittedGroup]:
    """Yield what the IO manager reports of each group that it commits."""
    days = list(catalogue.days(work.FIRST_DAY, catalogue.latest_closed_day(work.NOW)))
    for first in range(0, len(days), DAYS):
        for query in catalogue.queries:
            yield CommittedGroup(
                asset_key=dg.AssetKey(list(query.asset_path)),
                code_version="1",
                partitions=[
                    a_partition(f"{day}|{unit}")
                    for day in days[first : first + DAYS]
                    for unit in catalogue.unit_names
                ],
            )


def a_partition(key: str) -> CommittedPartition:
    """Return what is told about one file."""
    path = dg.MetadataValue.path(f"/data/store/made_up/category/value/v1/{key}.parquet")
    metadata = {"state": "committed", "rows": work.GROUPS, "bytes": 1_500, "path": path}
    return CommittedPartition(partition_key=key, data_version="5" * 64, metadata=metadata)
