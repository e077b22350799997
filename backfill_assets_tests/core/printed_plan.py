"""Print a whole plan: every state with its reason, every cycle, every set. Run as a program."""

from __future__ import annotations

import sys
from datetime import date

from backfill_assets.core.catalogue import Category, Unit
from backfill_assets.core.cycles import Bounds
from backfill_assets_tests.core.examples import a_catalogue, a_plan, names

DAYS = [date(2013, 8, day) for day in range(6, 0, -1)]


def main() -> None:
    catalogue = a_catalogue(
        units=[Unit(name) for name in ("north", "North", "É", "JFK", "LGA", "EWR")],
        categories=[Category("carrier"), Category("plane", first_day=DAYS[2]), Category("hour")],
    )
    plan = a_plan(
        catalogue,
        present=["carrier/departures/2013-08-03/north", "hour/departures/2013-08-06/É"],
        held=["hour/departures/2013-08-03/North"],
        in_flight=["carrier/departures/2013-08-02/JFK", "hour/departures/2013-08-02/É"],
    )
    lines = [
        f"{query.name}/{day}/{unit}: {state.value}, {why}"
        for day in DAYS
        for query in catalogue.queries
        for unit in catalogue.unit_names
        for state, why in [plan.explain(catalogue.partition(query.name, day, unit))]
    ]
    cycles = plan.cycles(Bounds(max_days=2, max_partitions=8))
    for number, cycle in enumerate(cycles, start=1):
        lines.append(f"cycle {number}: {cycle.first_day} … {cycle.last_day} {cycle.cut_by}")
        lines += names(cycle.partitions) + names(cycle.rectangle()) + list(cycle.units)
    lines += [repr(plan), repr(catalogue.grids), repr(catalogue.unit_segments)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
