"""What is expected of the models: scores of the flights of July to December 2013.

The months before are what they have learned from. The scores themselves come from ``source``.
"""

from __future__ import annotations

from datetime import date

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.partitions import ColumnType
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.models.steps import CATALOGUE

FIRST_DAY = date(2013, 7, 1)
LAST_DAY = date(2013, 12, 31)

FLIGHT_MODELS = Catalogue(
    name=CATALOGUE,
    description=(
        "How likely each scheduled flight was to arrive half an hour late or later, and how "
        "unusual it was, by two models that have learned from January to June 2013."
    ),
    closing=FLIGHTS.closing,
    first_day=FIRST_DAY,
    last_day=LAST_DAY,
    units=[Unit(unit.name) for unit in FLIGHTS.units],
    categories=(
        Category("flight", description="One row per scheduled flight, by carrier and number."),
        Category("carrier", description="The mean over the flights of a carrier."),
    ),
    value_types=(
        ValueType(
            "risk",
            ColumnType.FLOAT64,
            "The probability of an arrival 30 minutes late or later, 0 to 1.",
        ),
        ValueType(
            "anomaly",
            ColumnType.FLOAT64,
            "How unusual schedule and weather are: about 0.4 is usual, towards 1 is not.",
        ),
    ),
    # Scores of models that were replaced are stale, on every day, and are made again newest first.
    look_back_days=(LAST_DAY - FIRST_DAY).days + 1,
)
