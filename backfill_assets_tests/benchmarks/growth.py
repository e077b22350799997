"""What a file costs as the work grows: more years, more units, more queries."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.benchmarks.measuring import Figure, Goal

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets_tests.benchmarks.bench import Bench

YEAR = 365
# The first of each kind is what the others are compared with. Units grow on a fifth of a year, to
# keep the largest below 90,000 files.
SIZES = {
    "years": [(days, 3, 16) for days in (YEAR, 2 * YEAR, 5 * YEAR)],
    "units": [(YEAR // 5, units, 16) for units in (3, 30, 57)],
    "queries": [(YEAR, 3, queries) for queries in (16, 64)],
}
SMALL = {"years": [(2, 3, 4), (4, 3, 4)], "units": [(2, 3, 4)], "queries": [(2, 3, 4)]}
# Linear, with room for what a busy machine adds.
LINEAR = Goal("linear or better: at most 1.1 times", lambda f: (f.times_faster or 0) * 1.1 >= 1)


def run(bench: Bench) -> list[Figure]:
    """Measure every size: making all files, and a scan and plan of them afterwards."""
    sizes = SMALL if bench.small else SIZES
    costs = {kind: [cost(bench, *size) for size in each] for kind, each in sizes.items()}
    points = {
        kind: [
            (math.prod(size), math.prod(size) * own[0])
            for size, own in zip(each, costs[kind], strict=True)
        ]
        for kind, each in sizes.items()
    }
    draw(points, bench.results / "growth.svg")
    return [figure for kind, each in sizes.items() for figure in figures(kind, each, costs[kind])]


def draw(costs: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Draw the seconds of all files against their number; straight lines are linear growth."""
    # Not at the top: only this needs it.
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(7, 4))
    axes = drawing.subplots()
    for kind, points in costs.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=f"more {kind}")
    axes.set_xlabel("files")
    axes.set_ylabel("seconds until all are committed")
    axes.legend()
    drawing.savefig(path)


def figures(
    kind: str, sizes: list[tuple[int, int, int]], costs: list[tuple[float, float]]
) -> list[Figure]:
    """Return the costs of the larger sizes beside the first."""
    names = ("making a file", "scan and plan of a partition")
    factors = (1e3, 1e6)
    return [
        Figure(
            what=f"{names[part]}, {kind}: {_name(size)}",
            unit=("ms", "µs")[part],
            product=[factors[part] * own[part]],
            against=_name(sizes[0]) if size != sizes[0] else "",
            other=[factors[part] * costs[0][part]] if size != sizes[0] else None,
            goal=LINEAR if size != sizes[0] else None,
        )
        for part in (0, 1)
        for size, own in zip(sizes, costs, strict=True)
    ]


def cost(bench: Bench, days: int, units: int, queries: int) -> tuple[float, float]:
    """Return the seconds a file takes to be made, and a partition to be scanned and planned."""
    catalogue = work.a_catalogue(days=days, units=units, queries=queries)
    store = LocalPartitionStore(bench.new_folder("store"), [catalogue])
    store.prepare()
    project = Project(
        data_sets=[DataSet(catalogue, work.MadeUpSource())],
        store=store,
        clock=FixedClock(work.NOW),
    )
    files = days * units * queries
    began = time.perf_counter()
    work.fill(project)
    filled = time.perf_counter()
    assert len(project.plan(catalogue).committed) == files
    planned = time.perf_counter()
    return (filled - began) / files, (planned - filled) / files


def _name(size: tuple[int, int, int]) -> str:
    days, units, queries = size
    return f"{days} days × {units} units × {queries} queries"
