"""One job for each grid: a run never mixes two partitions definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.resources.run_requests import asset_key, job_queries

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue


def partition_jobs(catalogue: Catalogue) -> list[Any]:
    """Return the jobs that the sensor launches, and that people may launch too.

    They are of the type that ``define_asset_job`` returns, which Dagster does not export.
    """
    return [
        dg.define_asset_job(
            name,
            selection=dg.AssetSelection.assets(*(asset_key(query) for query in queries)),
            description=f"Commits missing partitions of {catalogue.name}, newest day first.",
        )
        for name, queries in job_queries(catalogue).items()
    ]
