"""Partitions definitions: date × unit, one for each grid of a catalogue.

Dagster takes exactly two dimensions and sorts them by name. Its ``end_date`` is exclusive, and days
that never were are keys all the same: asked for, they are reported as not expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.core.closing import ONE_DAY

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue, Grid


def partitions_definition(catalogue: Catalogue, grid: Grid) -> dg.MultiPartitionsDefinition:
    """Return the rectangle of days × units that Dagster shows for the queries of a grid."""
    return dg.MultiPartitionsDefinition(
        {
            "date": daily_partitions(catalogue, grid),
            "unit": dg.StaticPartitionsDefinition(list(catalogue.unit_names)),
        }
    )


def daily_partitions(catalogue: Catalogue, grid: Grid) -> dg.DailyPartitionsDefinition:
    """Return the days of a grid, from its first to the catalogue's last or to today."""
    end = None if catalogue.last_day is None else (catalogue.last_day + ONE_DAY).isoformat()
    return dg.DailyPartitionsDefinition(
        start_date=grid.first_day.isoformat(), end_date=end, timezone=catalogue.closing.zone.key
    )
