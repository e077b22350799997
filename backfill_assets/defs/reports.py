"""Assets that read the partitions: the report of a day, for people."""

import dagster as dg
import pyarrow as pa

from backfill_assets.defs.partitions import daily_partitions
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.daily_report import punctuality_of_carriers
from backfill_assets.resources.project import Project


def reports(project: Project) -> list[dg.AssetsDefinition]:
    """Return the reports on the project's data sets; none on one that it does not have."""
    return [daily_report()] if FLIGHTS in project.catalogues else []


def daily_report() -> dg.AssetsDefinition:
    """Return the asset that ranks the carriers of a day by punctuality, over all airports."""
    # Dagster maps a day to all units of that day by itself.
    upstream = {
        name: dg.AssetIn(key=["flights", "carrier", name])
        for name in ("departures", "cancellations", "arrival_delay")
    }

    @dg.asset(
        key=["flights", "daily_report"],
        ins=upstream,
        partitions_def=daily_partitions(FLIGHTS, FLIGHTS.grids[0]),
        description=(
            "The carriers of a day by mean arrival delay, over all airports. Fails where an "
            "upstream partition is not committed."
        ),
        group_name="flights",
        kinds={"pandas"},
    )
    def report(
        departures: pa.Table, cancellations: pa.Table, arrival_delay: pa.Table
    ) -> dg.MaterializeResult[None]:
        # Arrow in, pandas here: an annotation with pandas would make each run import it.
        frames = [t.to_pandas() for t in (departures, cancellations, arrival_delay)]
        table = punctuality_of_carriers(*frames)
        return dg.MaterializeResult(
            metadata={
                "carriers": dg.MetadataValue.md(table.to_markdown(index=False)),
                "departures": int(table["departures"].sum()),
            }
        )

    return report
