"""What a file costs as the work grows: more years, more units, more queries."""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING

from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.benchmarks.measuring import Figure, Goal, Samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from backfill_assets_tests.benchmarks.bench import Bench

Size = tuple[int, int, int]  # days, units, queries
Costs = dict[Size, tuple[Samples, Samples]]  # of making a file, and of planning it

YEAR = 365
# The first of each kind is what the others are compared with. Units and queries grow on a tenth of
# a year: what matters is how a file's cost changes, and all are made three times.
SIZES = {
    "years": [(days, 3, 4) for days in (YEAR, 2 * YEAR, 5 * YEAR)],
    "units": [(YEAR // 10, units, 8) for units in (3, 30, 57)],
    "queries": [(YEAR // 10, 3, queries) for queries in (16, 64)],
}
ROUNDS = 3
SMALL = {"years": [(2, 3, 4), (4, 3, 4)]}
# Linear, with room for what a busy machine adds even to the time of the processor.
LINEAR = Goal("linear or better: at most 1.1 times", lambda f: (f.times_faster or 0) * 1.1 >= 1)


def run(bench: Bench) -> list[Figure]:
    """Measure every size in turns: making all files, and a scan and plan of them afterwards."""
    sizes = SMALL if bench.small else SIZES
    costs: Costs = {size: ([], []) for each in sizes.values() for size in each}
    for _ in range(1 if bench.small else ROUNDS):
        for size, samples in costs.items():
            for known, found in zip(samples, cost(bench, *size), strict=True):
                known.append(found)
    draw(sizes, costs, bench.results / "growth.svg")
    return [figure for kind, each in sizes.items() for figure in figures(kind, each, costs)]


def draw(sizes: Mapping[str, Sequence[Size]], costs: Costs, path: Path) -> None:
    """Draw the seconds of all files against their number; straight lines are linear growth."""
    # Not at the top: only this needs it.
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(7, 4))
    axes = drawing.subplots()
    for kind, each in sizes.items():
        files = [math.prod(size) for size in each]
        seconds = [math.prod(size) * statistics.median(costs[size][0]) / 1e3 for size in each]
        axes.plot(files, seconds, marker="o", label=f"more {kind}")
    axes.set_xlabel("files")
    axes.set_ylabel("processor seconds until all are committed")
    axes.legend()
    drawing.savefig(path)


def figures(kind: str, sizes: Sequence[Size], costs: Costs) -> list[Figure]:
    """Return the costs of the larger sizes beside the first."""
    parts = (
        ("making a file", "ms of processor"),
        ("scan and plan of a partition", "µs of processor"),
    )
    return [
        Figure(
            what=f"{what}, {kind}: {_name(size)}",
            unit=unit,
            product=costs[size][part],
            against=_name(sizes[0]),
            other=costs[sizes[0]][part],
            goal=LINEAR,
            note="the processor's time, not the clock's: it grows with the work alone",
        )
        for part, (what, unit) in enumerate(parts)
        for size in sizes[1:]
    ]


def cost(bench: Bench, days: int, units: int, queries: int) -> tuple[float, float]:
    """Return the milliseconds that making a file takes, and the microseconds of planning it."""
    catalogue = work.a_catalogue(days=days, units=units, queries=queries)
    store = LocalPartitionStore(bench.new_folder("store"), [catalogue])
    store.prepare()
    project = Project(
        data_sets=[DataSet(catalogue, work.MadeUpSource())],
        store=store,
        clock=FixedClock(work.NOW),
    )
    files = days * units * queries
    began = time.process_time()
    work.fill(project)
    filled = time.process_time()
    assert len(project.plan(catalogue).committed) == files
    planned = time.process_time()
    return 1e3 * (filled - began) / files, 1e6 * (planned - filled) / files


def _name(size: Size) -> str:
    days, units, queries = size
    return f"{days} days × {units} units × {queries} queries"
