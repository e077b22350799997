"""The year of flights without Dagster: one process, durable, beside Luigi and a loop by hand."""

from __future__ import annotations

import os
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from backfill_assets.core.plan import expected_partitions
from backfill_assets.flights.source import FlightsSource
from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.partition_stream import DAYS_PER_QUERY
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.durability import Flusher
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.benchmarks.measuring import Figure, each, faster, in_turns, within
from backfill_assets_tests.benchmarks.peers.environment import run_peer
from backfill_assets_tests.benchmarks.work import NOW, fill, open_flights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from pathlib import Path

    import pyarrow as pa

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets_tests.benchmarks.bench import Bench

LUIGI = "Luigi, RangeDailyBase(reverse), LocalTarget, local scheduler, {}"


def run(bench: Bench) -> list[Figure]:
    """Compare on the whole year, 17,520 files, or on two days."""
    catalogue = open_flights(days=2 if bench.small else 365)
    partitions = len(expected_partitions(catalogue, catalogue.latest_closed_day(NOW)))
    url = bench.flights_url()

    def luigi(*, batched: bool) -> float:
        root = bench.new_folder("luigi")
        days = partitions // (len(catalogue.units) * len(catalogue.queries))
        found = run_peer("luigi_year", url=url, root=root, days=days, batched=batched)
        _check(root, partitions)
        return float(found["seconds"])

    one_each, batched = LUIGI.format("one query each"), LUIGI.format("batched queries")
    by_hand = "a loop by hand: batched queries, same rows, same flushing, no checks, no digests"
    seconds = in_turns(
        {
            "product": lambda: product(bench.new_folder("store"), url, catalogue),
            one_each: lambda: luigi(batched=False),
            batched: lambda: luigi(batched=True),
            by_hand: lambda: loop_by_hand(bench.new_folder("loop"), url, catalogue),
        },
        rounds=1 if bench.small else 3,
    )
    goals = {one_each: faster(1), batched: faster(1), by_hand: within(1.5)}
    return [
        Figure(
            what=f"the year without Dagster, {partitions:,} files",
            unit="ms a file",
            product=each(seconds["product"], partitions, factor=1e3),
            against=name,
            other=each(seconds[name], partitions, factor=1e3),
            goal=goal,
        )
        for name, goal in goals.items()
    ]


def product(root: Path, url: str, catalogue: Catalogue) -> None:
    """Fill a store as the product's runs do, durably."""
    store = LocalPartitionStore(root, [catalogue])
    store.prepare()
    source = FlightsSource(lambda: url)
    fill(Project(data_sets=[DataSet(catalogue, source)], store=store, clock=FixedClock(NOW)))


def loop_by_hand(root: Path, url: str, catalogue: Catalogue) -> None:
    """Do what a person would write who knows what flushing costs, and trusts the rest."""
    root.mkdir()
    source = FlightsSource(lambda: url)
    value_types = [value_type.name for value_type in catalogue.value_types]
    days = list(catalogue.days(catalogue.first_day, catalogue.latest_closed_day(NOW)))
    with closing(Flusher(str(root))) as flusher:
        for category in catalogue.categories:
            for first in range(0, len(days), DAYS_PER_QUERY):
                batch = days[first : first + DAYS_PER_QUERY]
                rows = source.read(category.name, value_types, batch, catalogue.unit_names)
                drafts = [
                    _write(root, day, unit, part, value_type)
                    for day, unit, part in _parts(rows)
                    for value_type in value_types
                ]
                flusher.flush(drafts)
                for draft in drafts:
                    os.replace(draft, draft.removesuffix(".tmp"))  # noqa: PTH105 - text, for speed
                flusher.flush(drafts)


def _parts(rows: pa.Table) -> Iterator[tuple[date, str, pa.Table]]:
    """Yield the rows of each day and unit; the source sorts them so."""
    keys = zip(rows["date"].to_pylist(), rows["unit"].to_pylist(), strict=True)
    start = 0
    for (day, unit), group in groupby(keys):
        count = sum(1 for _ in group)
        yield day, unit, rows.slice(start, count)
        start += count


def _write(root: Path, day: date, unit: str, rows: pa.Table, value_type: str) -> str:
    category = rows.column_names[2]
    table = rows.select(["date", "unit", category, value_type])
    folder = f"{root}/{category}/{value_type}/{day}"
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - text, for speed
    draft = f"{folder}/{unit}.parquet.tmp"
    names = ["date", "unit", category, "value"]
    pq.write_table(
        table.rename_columns(names),
        draft,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    return draft


def _check(root: Path, partitions: int) -> None:
    found = sum(1 for _ in root.rglob("*.parquet"))
    assert found == partitions, f"{root} has {found} files, not {partitions}"
