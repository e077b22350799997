"""The same assets in plain Dagster: partitions of date × unit, nothing of the product around them.

Dagster evaluates the annotation of ``context`` when an asset is made, so this module does not
postpone its annotations.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backfill_assets.flights.source import FlightsSource
from backfill_assets_tests.benchmarks.work import open_flights

CATALOGUE = open_flights()
URL, ROOT = os.environ["PEER_SOURCE_URL"], os.environ["PEER_ROOT"]
SOURCE = FlightsSource(lambda: URL)
PARTITIONS = dg.MultiPartitionsDefinition(
    {
        "date": dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01"),
        "unit": dg.StaticPartitionsDefinition(list(CATALOGUE.unit_names)),
    }
)
VALUE_TYPES = [value_type.name for value_type in CATALOGUE.value_types]


def asset_key(category: str, value_type: str) -> dg.AssetKey:
    """Return the key of one query's asset."""
    return dg.AssetKey(["flights", category, value_type])


def category_in_one_run(category: str) -> dg.AssetsDefinition:
    """Return a category's assets, over any range of partitions in one run, by one query.

    They write their files themselves, for no stock IO manager can take many partitions of one
    output: ``UPathIOManager`` refuses, and advises to do without. Nothing is flushed.
    """

    @dg.multi_asset(
        name=f"by_{category}",
        specs=[
            dg.AssetSpec(asset_key(category, value_type), partitions_def=PARTITIONS)
            for value_type in VALUE_TYPES
        ],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def assets(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        keys = [key.keys_by_dimension for key in context.partition_keys]
        days = sorted({pd.Timestamp(key["date"]).date() for key in keys})
        rows = SOURCE.read(category, VALUE_TYPES, days, CATALOGUE.unit_names)
        for value_type in VALUE_TYPES:
            for key in keys:
                _write(rows, category, value_type, key)
            yield dg.MaterializeResult(asset_key=asset_key(category, value_type))

    return assets


def query_in_one_run_each(category: str, value_type: str) -> dg.AssetsDefinition:
    """Return one query's asset, a run for each partition, with the default IO manager."""

    @dg.asset(key=asset_key(category, value_type), partitions_def=PARTITIONS)
    def query(context: dg.AssetExecutionContext) -> pd.DataFrame:
        key = context.partition_key.keys_by_dimension
        day = pd.Timestamp(key["date"]).date()
        return SOURCE.read(category, [value_type], [day], [key["unit"]]).to_pandas()

    return query


def events_only(category: str) -> dg.AssetsDefinition:
    """Return assets that do nothing: what is left is what Dagster's own events cost."""

    @dg.multi_asset(
        name=f"by_{category}",
        specs=[
            dg.AssetSpec(asset_key(category, value_type), partitions_def=PARTITIONS)
            for value_type in VALUE_TYPES
        ],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def assets() -> Iterator[dg.MaterializeResult]:
        for value_type in VALUE_TYPES:
            yield dg.MaterializeResult(asset_key=asset_key(category, value_type))

    return assets


def _write(rows, category: str, value_type: str, key: dict[str, str]) -> None:
    day = pd.Timestamp(key["date"]).date()
    own = pc.and_(pc.equal(rows["date"], day), pc.equal(rows["unit"], key["unit"]))
    table = rows.select(["date", "unit", category, value_type]).filter(own)
    path = Path(ROOT) / category / value_type / key["date"] / f"{key['unit']}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="none", use_dictionary=False)


def instance(home: Path, url: str) -> dg.DagsterInstance:
    """Return a Dagster as it comes, with its own PostgreSQL storage."""
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(
        f"telemetry: {{enabled: false}}\nstorage: {{postgres: {{postgres_url: '{url}'}}}}\n"
    )
    return dg.DagsterInstance.from_config(str(home))
