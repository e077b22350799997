"""Taking in a tree of files, each checked and some written anew, beside copying it unseen.

The trees are read from memory, and every round fills a folder of its own: a file system is slow to
make files where many were just removed.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.resources.adoption import adopt
from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.durability import Flusher
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.benchmarks.measuring import Figure, each, in_turns, within

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets_tests.benchmarks.bench import Bench

COPY = "cp -r: shutil.copytree and one flush, no checks"


def run(bench: Bench) -> list[Figure]:
    """Compare on 17,520 files, or on a few: another store's, and any program's."""
    catalogue = work.a_catalogue(days=10 if bench.small else 365, units=3, queries=16)
    ours, foreign = bench.new_folder("ours"), bench.new_folder("foreign")
    work.fill(a_project(ours, catalogue))
    count = write_as_others_do(ours, foreign)
    seconds = in_turns(
        {
            "product, ours": lambda: product(bench.new_folder("store"), catalogue, ours, count),
            "copy, ours": lambda: copy(bench.new_folder("copy"), ours),
            "product, foreign": lambda: product(
                bench.new_folder("store"), catalogue, foreign, count
            ),
            "copy, foreign": lambda: copy(bench.new_folder("copy"), foreign),
        },
        rounds=1 if bench.small else 2,
    )
    return [
        Figure(
            what=f"adopting {count:,} files {of_whom}, durably",
            unit="ms a file",
            product=each(seconds[f"product, {tree}"], count, factor=1e3),
            against=COPY,
            other=each(seconds[f"copy, {tree}"], count, factor=1e3),
            goal=within(times),
        )
        for tree, of_whom, times in (
            ("ours", "of another store, checked", 2),
            ("foreign", "of any program, checked and written anew", 3),
        )
    ]


def a_project(root: Path, catalogue: Catalogue) -> Project:
    """Return a project with a new store."""
    store = LocalPartitionStore(root, [catalogue])
    store.prepare()
    source = work.MadeUpSource()
    return Project(data_sets=[DataSet(catalogue, source)], store=store, clock=FixedClock(work.NOW))


def write_as_others_do(ours: Path, foreign: Path) -> int:
    """Write the rows of every file of a store with Arrow's own settings; return how many."""
    count = 0
    for path in ours.rglob("*.parquet"):
        target = foreign / path.relative_to(ours)
        target.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetFile(pa.BufferReader(path.read_bytes())) as file:
            table = file.read(use_threads=False)
        pq.write_table(table.replace_schema_metadata(None), target)
        count += 1
    return count


def product(root: Path, catalogue: Catalogue, tree: Path, count: int) -> None:
    """Take the tree in as the command does."""
    outcome = adopt(a_project(root, catalogue), tree)
    assert outcome.adopted == count, outcome.facts()


def copy(root: Path, tree: Path) -> None:
    """Copy the tree and flush it."""
    shutil.copytree(tree, root)
    with closing(Flusher(str(root))) as flusher:
        flusher.flush(map(str, root.rglob("*")))
