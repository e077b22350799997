"""The year of flights without Dagster: one process, durable, beside Luigi and a loop by hand."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from backfill_assets.flights.source import FlightsSource
from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.partition_stream import days_of_a_group
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
    from backfill_assets_tests.benchmarks.measuring import Goal, Samples

FILES_A_DAY = 3 * 16
LUIGI = "Luigi: RangeDailyBase(reverse), LocalTarget, local scheduler, no flushing, {}"
BY_HAND = "a loop by hand: batched queries, same rows, same flushing, no digests, no checks"


def run(bench: Bench) -> list[Figure]:
    """Compare on the whole year, 17,520 files, and with Luigi on the first months of it."""
    url = bench.flights_url()
    year, sample = (open_flights(2), 1) if bench.small else (open_flights(), 73)
    by_hand = in_turns(
        {
            "product": lambda: product(bench.new_folder("store"), url, year),
            "loop": lambda: loop_by_hand(bench.new_folder("loop"), url, year),
        },
        rounds=1 if bench.small else 5,
    )
    batched, one_each = (
        in_turns(
            {
                "product": lambda: product(bench.new_folder("store"), url, open_flights(sample)),
                "Luigi": partial(luigi, bench, url, days=sample, batched=batched),
            },
            rounds=1 if bench.small else 2,
        )
        for batched in (True, False)
    )
    growth = luigi_growth(bench, url, sample)
    whole, part = (days * FILES_A_DAY for days in (2 if bench.small else 365, sample))
    return [
        figure(whole, by_hand, "loop", BY_HAND, within(1.5)),
        figure(part, one_each, "Luigi", LUIGI.format("one query each"), faster(1)),
        replace(
            figure(part, batched, "Luigi", LUIGI.format("batched queries"), faster(1)), note=growth
        ),
    ]


def figure(files: int, seconds: dict[str, Samples], name: str, against: str, goal: Goal) -> Figure:
    """Return what both took for each file."""
    return Figure(
        what=f"without Dagster, one process, durable: {files:,} files",
        unit="ms a file",
        product=each(seconds["product"], files, factor=1e3),
        against=against,
        other=each(seconds[name], files, factor=1e3),
        goal=goal,
    )


def luigi(bench: Bench, url: str, *, days: int, batched: bool) -> float:
    """Have Luigi make the first days of the year, and return its seconds."""
    root = bench.new_folder("luigi")
    found = run_peer("luigi_year", url=url, root=root, days=days, batched=batched)
    files = sum(1 for _ in root.rglob("*.parquet"))
    assert files == days * FILES_A_DAY, f"{root} has {files} files"
    return float(found["seconds"])


def luigi_growth(bench: Bench, url: str, days: int) -> str:
    """Say how Luigi's cost grows, which is why it does not make the whole year here."""
    half = max(days // 2, 1)
    costs = [
        f"{1e3 * luigi(bench, url, days=n, batched=True) / (n * FILES_A_DAY):.1f} ms a file for "
        f"{n * FILES_A_DAY:,} files"
        for n in (half, days)
    ]
    return f"Luigi looks through all waiting tasks for each: {', '.join(costs)}"


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
    size = days_of_a_group(len(days) * len(catalogue.units) * len(value_types), len(days))
    with closing(Flusher(str(root))) as flusher:
        for category in catalogue.categories:
            for first in range(0, len(days), size):
                batch = days[first : first + size]
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
