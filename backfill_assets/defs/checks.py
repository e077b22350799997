"""Asset checks: do the grid, and the log database, say what the files say?

Dagster cannot take one partition's green back. Where a partition that it shows as materialized has
no sound file, or is held, these fail and name it. The event log is asked for display only.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg

from backfill_assets.core.catalogue import Catalogue
from backfill_assets.core.partitions import Query
from backfill_assets.defs.assets import IO_MANAGER
from backfill_assets.resources.log_agreement import disagreements, figures
from backfill_assets.resources.project import Project
from backfill_assets.resources.run_requests import asset_key
from backfill_assets.resources.soundness import Soundness

CHECK_NAME = "grid_agrees_with_files"
LOG_CHECK_NAME = "log_agrees_with_files"
NAMED = 20  # partitions that a result names of each kind before it counts the rest


def partition_checks(project: Project, catalogue: Catalogue) -> dg.AssetChecksDefinition:
    """Return one check for each asset of a catalogue; they share one scan."""

    @dg.multi_asset_check(
        name=f"{catalogue.name}_{CHECK_NAME}",
        specs=[_spec(query) for query in catalogue.queries],
        can_subset=True,
        # For the attempt that comes with it, whose lock tells whether the run is alive.
        required_resource_keys={IO_MANAGER},
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        soundness = Soundness(project, catalogue, context.instance)
        wanted = {key.asset_key for key in context.selected_asset_check_keys}
        for query in catalogue.queries:
            if asset_key(query) in wanted:
                yield _result(query, soundness.faults(query))

    return checks


def log_check(project: Project, catalogue: Catalogue) -> dg.AssetChecksDefinition:
    """Return the check of what the log database says about a catalogue against its files."""

    @dg.asset_check(
        name=LOG_CHECK_NAME,
        asset=dg.AssetKey([catalogue.name, "coverage"]),
        description=(
            "What the log database says about partitions is what the files say. Digests are "
            "compared for the newest 20,000; `backfill-assets reconcile` compares all."
        ),
        # For the attempt that comes with it, whose lock tells whether the run is alive.
        required_resource_keys={IO_MANAGER},
    )
    def log_agrees_with_files() -> dg.AssetCheckResult:
        found = {kind: names for kind, names in disagreements(project, catalogue).items() if names}
        told = _told(found)
        told["metadata"] |= figures(project, catalogue)
        return dg.AssetCheckResult(passed=not found, **told)

    return log_agrees_with_files


def _spec(query: Query) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        CHECK_NAME,
        asset=asset_key(query),
        description=(
            "Every partition shown as materialized has a sound file and is not held, and none has "
            "failed so often that a person should look."
        ),
    )


def _result(query: Query, faults: dict[str, list[str]]) -> dg.AssetCheckResult:
    found = {kind: names for kind, names in faults.items() if names}
    return dg.AssetCheckResult(
        passed=not found, asset_key=asset_key(query), check_name=CHECK_NAME, **_told(found)
    )


def _told(found: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "description": "; ".join(f"{len(names)} {kind}" for kind, names in found.items())
        or "agrees",
        "metadata": {kind: dg.MetadataValue.md(_listed(names)) for kind, names in found.items()},
    }


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = [f"and {len(every) - NAMED} more"] if len(every) > NAMED else []
    return "\n".join(f"* {name}" for name in every[:NAMED] + more)
