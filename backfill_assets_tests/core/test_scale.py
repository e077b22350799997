"""A million partitions are a few thousand integers."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.cycles import Bounds
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import make_plan

FIRST_DAY = date(2013, 1, 1)
FIFTY_MEGABYTES = 50 * 2**20  # a million tuples would be several times that


def wide_catalogue(units: int, categories: int, value_types: int) -> Catalogue:
    return Catalogue(
        name="wide",
        closing=ClosingPolicy(zone=ZoneInfo("America/New_York")),
        first_day=FIRST_DAY,
        units=[Unit(f"U{number}") for number in range(units)],
        categories=[Category(f"c{number}") for number in range(categories)],
        value_types=[ValueType(f"v{number}") for number in range(value_types)],
    )


@pytest.mark.parametrize(
    ("units", "categories", "value_types", "days"),
    [(1_000, 2, 1, 500), (10, 10, 10, 1_000)],
    ids=["many units", "many queries and days"],
)
def test_a_million_partitions_are_planned_in_little_memory(
    units: int, categories: int, value_types: int, days: int
) -> None:
    catalogue = wide_catalogue(units, categories, value_types)
    now = datetime(2013, 1, 1, 12, tzinfo=UTC) + timedelta(days=days)
    nothing = PartitionSet.empty(catalogue)
    history = list(catalogue.days(FIRST_DAY, FIRST_DAY + timedelta(days=days - 1)))
    every_unit = (1 << units) - 1

    tracemalloc.start()
    all_but_the_oldest = PartitionSet.rectangle(
        catalogue, catalogue.queries, history[:-1], every_unit
    )
    empty_store = make_plan(catalogue, present=nothing, held=nothing, in_flight=nothing, now=now)
    nearly_done = make_plan(
        catalogue, present=all_but_the_oldest, held=nothing, in_flight=nothing, now=now
    )
    cycles = list(islice(empty_store.cycles(Bounds(max_partitions=50_000)), 3))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    queries = categories * value_types
    assert len(empty_store.missing) == 1_000_000
    assert len(nearly_done.missing) == units * queries
    assert nearly_done.missing.days() == [FIRST_DAY]
    assert len(cycles[0].partitions) == units * queries
    assert peak < FIFTY_MEGABYTES
