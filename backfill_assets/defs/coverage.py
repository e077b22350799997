"""The asset ``coverage`` of each catalogue: how complete it is, where people look for it."""

import dagster as dg

from backfill_assets.core.catalogue import Catalogue
from backfill_assets.core.coverage import Coverage
from backfill_assets.defs.assets import IO_MANAGER
from backfill_assets.resources.coverage_report import (
    calendar_markdown,
    facts,
    markdown,
    percent,
)
from backfill_assets.resources.project import Project


def coverage_asset(project: Project, catalogue: Catalogue) -> dg.AssetsDefinition:
    """Return the asset whose materialization shows the coverage of a catalogue, from the files."""

    @dg.asset(
        key=[catalogue.name, "coverage"],
        group_name=catalogue.name,
        description=(
            "How complete the catalogue is: a calendar, and counts by query and unit. Computed "
            "from the files alone, whatever Dagster's event log says. Materialize it to look anew."
        ),
        kinds={"table"},
        # For the attempt that comes with it, whose lock tells whether the run is alive.
        required_resource_keys={IO_MANAGER},
    )
    def coverage() -> dg.MaterializeResult[None]:
        found = Coverage(project.plan(catalogue, looks_for_changes=True))
        left = project.seconds_left(found.plan)
        known = facts(found, project.failures(catalogue), left)
        headline = ("time_left", "complete_until", "oldest_hole", "next_day", "next_day_closes_at")
        return dg.MaterializeResult(
            metadata={
                "calendar": dg.MetadataValue.md(calendar_markdown(found)),
                "completeness": percent(found.total.committed, found.total.expected),
                **known["total"],
                **{name: known[name] or "none" for name in headline},
                "by query": dg.MetadataValue.md(markdown(found.by_query(), "query")),
                "by unit": dg.MetadataValue.md(markdown(found.by_unit(), "unit")),
                "failures": dg.MetadataValue.json(known["failures"]),
            }
        )

    return coverage
