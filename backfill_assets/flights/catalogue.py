"""What is expected of the flights that left New York in 2013: airports, cuts and measures.

Where the figures come from is in ``source``.
"""

from __future__ import annotations

from datetime import date, timedelta
from zoneinfo import ZoneInfo

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.partitions import ColumnType

FLIGHTS = Catalogue(
    name="flights",
    description=(
        "All flights that were scheduled to depart from the three airports of New York City in "
        "2013, by day of scheduled departure."
    ),
    # The last flight of a day lands next morning, and its arrival delay belongs to that day.
    closing=ClosingPolicy(zone=ZoneInfo("America/New_York"), allowed_lateness=timedelta(hours=8)),
    first_day=date(2013, 1, 1),
    last_day=date(2013, 12, 31),
    units=(
        Unit("EWR"),
        Unit("JFK"),
        # Made up, to show a unit that opens later: LaGuardia has flights from 1 January on.
        Unit("LGA", first_day=date(2013, 1, 5)),
    ),
    categories=(
        Category("carrier", description="One row per carrier, by its two-character code."),
        Category("destination", description="One row per destination airport, by its FAA code."),
        Category(
            "hour",
            ColumnType.INT64,
            description="One row per hour of scheduled departure, 0 to 23, New York time.",
        ),
        Category(
            "manufacturer",
            description=(
                "One row per manufacturer of the aircraft, by tail number; `unknown` where the "
                "aircraft register has none."
            ),
            # Made up, to show a category that means something only from a later day on.
            first_day=date(2013, 3, 1),
        ),
    ),
    value_types=(
        ValueType("departures", ColumnType.INT64, "Flights that departed."),
        ValueType(
            "cancellations", ColumnType.INT64, "Flights that were scheduled and never departed."
        ),
        ValueType(
            "departure_delay",
            ColumnType.FLOAT64,
            "Mean delay at departure in minutes, negative when early, over the flights that "
            "departed; null where none did.",
        ),
        ValueType(
            "arrival_delay",
            ColumnType.FLOAT64,
            "Mean delay at arrival in minutes, negative when early, over the flights that arrived "
            "at their destination; null where none did.",
        ),
    ),
)
