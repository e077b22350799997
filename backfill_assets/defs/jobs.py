"""One job for each grid: a run never mixes two partitions definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.resources.run_requests import asset_key, coverage_job_name, job_queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query


def partition_jobs(catalogue: Catalogue, looked_at: Sequence[dg.AssetKey] = ()) -> list[Any]:
    """Return the jobs that the sensor launches, and that people may launch too.

    They are of the type that ``define_asset_job`` returns, which Dagster does not export.

    Args:
        looked_at: More assets that are looked at, and checked, whenever the coverage is.
    """
    jobs = [
        dg.define_asset_job(
            name,
            # The checks look at the whole catalogue: once after the work, not in each run of it.
            selection=dg.AssetSelection.assets(*map(asset_key, queries)).without_checks(),
            description=_description(catalogue, queries),
        )
        for name, queries in job_queries(catalogue).items()
    ]
    return [*jobs, coverage_job(catalogue, looked_at)]


def _description(catalogue: Catalogue, queries: Sequence[Query]) -> str:
    categories = ", ".join(dict.fromkeys(query.category for query in queries))
    return (
        f"Commits missing partitions of {catalogue.name} by {categories}, from "
        f"{queries[0].first_day} on, newest day first."
    )


def coverage_job(catalogue: Catalogue, looked_at: Sequence[dg.AssetKey] = ()) -> Any:
    """Return the job that looks at the coverage of a catalogue and runs its checks."""
    keys = [asset_key(query) for query in catalogue.queries]
    return dg.define_asset_job(
        coverage_job_name(catalogue),
        selection=dg.AssetSelection.assets(dg.AssetKey([catalogue.name, "coverage"]), *looked_at)
        | dg.AssetSelection.checks_for_assets(*keys, *looked_at),
        description=f"Looks at the coverage of {catalogue.name}, and whether the grid agrees.",
    )
