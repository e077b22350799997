"""A Dagster that remembers every partition of some assets as materialized."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import psycopg

from backfill_assets.stores.sql import load_statements
from backfill_assets_tests.benchmarks.work import NOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.core.catalogue import Catalogue

_STATEMENTS = load_statements("backfill_assets_tests.benchmarks", "remembered.sql")


def remember(
    instance: dg.DagsterInstance, url: str, catalogue: Catalogue, keys: Sequence[dg.AssetKey]
) -> None:
    """Let an instance, whose database is at ``url``, know every partition of the given assets."""
    for key in keys:  # Dagster's own event makes the asset known
        event = dg.AssetMaterialization(key, partition="not a partition")
        instance.report_runless_asset_event(event)
    values = {
        "first": catalogue.first_day,
        "last": catalogue.latest_closed_day(NOW),
        "units": list(catalogue.unit_names),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        for key in keys:
            connection.execute(_STATEMENTS["remember"], values | {"asset_key": key.to_string()})
        connection.execute(_STATEMENTS["analyze"])
