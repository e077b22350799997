"""The work that the comparisons share: a catalogue of any size, its source, and the year."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.cycles import Bounds
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.stores.files.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from backfill_assets.resources.project import Project

FIRST_DAY = date(2021, 1, 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)  # every day of every catalogue here is closed
GROUPS = 20  # rows of a file; a flights file has 5 to 60
VALUE_TYPES = 4  # of every category
MILLION = {"days": 1_097, "units": 57, "queries": 16}  # 1,000,464 partitions


def open_flights(days: int = 365) -> Catalogue:
    """Return the flights as if every airport and category had been there from the first day on.

    365 days × 3 airports × 16 queries = 17,520 files. The project's own catalogue opens one
    airport and one category later, to show that it can, and expects 16,764.
    """
    return dataclasses.replace(
        FLIGHTS,
        last_day=FLIGHTS.first_day + timedelta(days=days - 1),
        units=[dataclasses.replace(unit, first_day=None) for unit in FLIGHTS.units],
        categories=[dataclasses.replace(each, first_day=None) for each in FLIGHTS.categories],
    )


def a_catalogue(*, days: int, units: int, queries: int) -> Catalogue:
    """Return a catalogue of days × units × queries; queries in multiples of four."""
    return Catalogue(
        name="made_up",
        closing=ClosingPolicy(zone=ZoneInfo("UTC")),
        first_day=FIRST_DAY,
        last_day=FIRST_DAY + timedelta(days=days - 1),
        units=[Unit(f"U{number:03}") for number in range(units)],
        categories=[Category(f"category_{number}") for number in range(queries // VALUE_TYPES)],
        value_types=[ValueType(f"value_{number}") for number in range(VALUE_TYPES)],
    )


def rows(category: str) -> pa.Table:
    """Return the rows of one file."""
    groups = [f"group {number:02}" for number in range(GROUPS)]
    return pa.table({category: groups, "value": [number * 1.5 for number in range(GROUPS)]})


class MadeUpSource:
    """A source that costs next to nothing: what is measured is everything around it."""

    def read(
        self, category: str, value_types: Sequence[str], days: Sequence[date], units: Sequence[str]
    ) -> pa.Table:
        """Return ``GROUPS`` rows for each day and unit."""
        count = len(days) * len(units)
        dates = pa.array(days, pa.date32()).take(_repeated(len(days), len(units) * GROUPS))
        names = pa.array(units).take(np.tile(_repeated(len(units), GROUPS), len(days)))
        groups = pa.array([f"group {number:02}" for number in range(GROUPS)])
        values = pa.array(np.arange(count * GROUPS) * 1.5)
        columns = {"date": dates, "unit": names, category: pa.concat_arrays([groups] * count)}
        return pa.table(columns | dict.fromkeys(value_types, values))


def fill(project: Project) -> None:
    """Commit all that is missing as runs do it, in this process and without Dagster."""
    # Not at the top: the peers share this module, and have no Dagster of ours to report to.
    from backfill_assets.resources.partition_stream import PartitionStream

    (data_set,) = project.data_sets
    catalogue = data_set.catalogue
    missing = project.plan(catalogue).missing
    with project.store.attempt("bench") as attempt:
        for _, group_of_queries in groupby(catalogue.queries, key=lambda query: query.category):
            queries = list(group_of_queries)
            stream = PartitionStream(
                assignment=project.assignment(missing.only(queries), replace=False),
                queries=queries,
                source=data_set.source,
                bounds=Bounds(),
            )
            for group in stream.groups():
                for partition, table in group:
                    attempt.stage(partition, table)
                stream.note_committed([file.partition for file in attempt.publish()])
            stream.finish()


def plant(root: Path, catalogue: Catalogue) -> None:
    """Make an empty file for every partition: a scan reads names only."""
    layout = Layout(root, ".parquet")
    names = [f"{segment}.parquet" for segment in catalogue.unit_segments.values()]
    for query in catalogue.queries:
        for day in catalogue.days(FIRST_DAY, catalogue.latest_closed_day(NOW)):
            folder = layout.day_folder(query, day)
            os.makedirs(folder)  # noqa: PTH103 - text, for speed: there may be a million
            for name in names:
                os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY))


def _repeated(count: int, times: int) -> np.ndarray:
    return np.repeat(np.arange(count), times)
