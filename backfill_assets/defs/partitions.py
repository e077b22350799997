"""Partitions definitions: date × unit, one for each grid of a catalogue.

Dagster takes exactly two dimensions and sorts them by name. Its ``end_date`` is exclusive, and days
that never were are keys all the same: asked for, they are reported as not expected.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.core.closing import ONE_DAY

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue, Grid


MOST_CELLS = 100_000  # of one asset, as Dagster advises


class LargeGridWarning(UserWarning):
    """An asset has more partitions than Dagster's pages are made for."""


def partitions_definition(catalogue: Catalogue, grid: Grid) -> dg.MultiPartitionsDefinition:
    """Return the rectangle of days × units that Dagster shows for the queries of a grid.

    Warns:
        LargeGridWarning: Dagster's pages are slow for as many cells.
    """
    _warn_of_size(catalogue, grid)
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


def _warn_of_size(catalogue: Catalogue, grid: Grid) -> None:
    if catalogue.last_day is None:
        return  # it grows by a day a day: nobody can be warned once
    cells = ((catalogue.last_day - grid.first_day).days + 1) * len(catalogue.units)
    if cells > MOST_CELLS:
        message = (
            f"each asset of {catalogue.name} from {grid.first_day} on has {cells:,} partitions, "
            f"and Dagster's pages are made for {MOST_CELLS:,}: split the units over two catalogues"
        )
        warnings.warn(message, LargeGridWarning, stacklevel=3)
