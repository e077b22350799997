"""The work that the comparisons share: a catalogue of any size, and its files."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pyarrow as pa

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.stores.files.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

FIRST_DAY = date(2021, 1, 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUPS = 20  # rows of a file; a flights file has 5 to 60


def a_catalogue(*, days: int, units: int, queries: int) -> Catalogue:
    """Return a catalogue of days × units × queries; queries in multiples of four."""
    return Catalogue(
        name="made_up",
        closing=ClosingPolicy(zone=ZoneInfo("UTC")),
        first_day=FIRST_DAY,
        last_day=FIRST_DAY + timedelta(days=days - 1),
        units=[Unit(f"U{number:03}") for number in range(units)],
        categories=[Category(f"category_{number}") for number in range(queries // 4)],
        value_types=[ValueType(f"value_{number}") for number in range(4)],
    )


def rows(category: str) -> pa.Table:
    """Return the rows of one file."""
    return pa.table(
        {
            category: [f"group {number:02}" for number in range(GROUPS)],
            "value": [number * 1.5 for number in range(GROUPS)],
        }
    )


def plant(root: Path, catalogue: Catalogue) -> None:
    """Make an empty file for every partition: a scan reads names only."""
    layout = Layout(root, ".parquet")
    names = [f"{segment}.parquet" for segment in catalogue.unit_segments.values()]
    last = catalogue.last_day or FIRST_DAY
    for query in catalogue.queries:
        for day in catalogue.days(FIRST_DAY, last):
            folder = root / layout.day_folder(query, day)
            folder.mkdir(parents=True)
            for name in names:
                (folder / name).touch()
