"""The year through the real daemon, from an empty folder to complete, beside plain Dagster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.resources.run_requests import run_queries
from backfill_assets_tests.benchmarks.measuring import Figure, faster
from backfill_assets_tests.benchmarks.plain_dagster import BATCHED, Found, run_each, single_run
from backfill_assets_tests.recovery.running import SMALL_CLOCK, Product
from backfill_assets_tests.recovery.waiting import wait_for

if TYPE_CHECKING:
    import dagster as dg

    from backfill_assets_tests.benchmarks.bench import Bench

LONGEST_SECONDS = 900
RUNS = 20  # of plain Dagster with a run for each partition
CATEGORIES = ("carrier", "hour")
HALF, WHOLE = "2013-01-16", "2013-01-31"  # plain Dagster's sample, in two sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """What `up` took.

    Attributes:
        seconds: From its start in an empty folder until the last run had ended.
        partitions: Committed by then.
        launch_seconds: From the sensor's first tick until its first run started.
        commit_seconds: From there until the newest day stood committed.
    """

    seconds: float
    partitions: int
    launch_seconds: float
    commit_seconds: float


def run(bench: Bench) -> list[Figure]:
    """Compare on the project's own catalogue, 16,764 partitions, or on its first days."""
    years: list[Year] = []
    samples: dict[str, list[Found]] = {"plain": [], "batched": [], "each": []}
    for _ in range(1 if bench.small else 2):
        years.append(through_the_daemon(bench))
        samples["plain"].append(a_sample(bench, {}))
        samples["batched"].append(a_sample(bench, BATCHED))
        samples["each"].append(run_each(bench, 2 if bench.small else RUNS))
    against = {
        "plain": ("plain Dagster, single_run, as it comes", faster(15)),
        "batched": ("plain Dagster, single_run, DAGSTER_EVENT_BATCH_SIZE=1000", faster(8)),
        "each": ("plain Dagster, a run for each partition", faster(500)),
    }
    notes = {kind: linearity(bench, kind, samples[kind]) for kind in against}
    return [
        Figure(
            what=f"the year through the daemon, {years[0].partitions:,} partitions",
            unit="ms a partition",
            product=[1e3 * year.seconds / year.partitions for year in years],
            against=name,
            other=[found.milliseconds_each for found in samples[kind]],
            goal=goal,
            note=notes[kind],
        )
        for kind, (name, goal) in against.items()
    ] + [
        Figure(
            what="the year through the daemon, all of it",
            unit="s",
            product=[year.seconds for year in years],
            note="`up` from an empty folder: PostgreSQL made, flights loaded, Dagster started",
        ),
        Figure(
            what="first data: from the sensor's tick to the start of its first run",
            unit="s",
            product=[year.launch_seconds for year in years],
            note="Dagster's part: queue, process, imports",
        ),
        Figure(
            what="first data: from there to the newest day committed, with the year missing",
            unit="s",
            product=[year.commit_seconds for year in years],
        ),
    ]


def through_the_daemon(bench: Bench) -> Year:
    """Let ``backfill-assets up`` complete the year in a folder that is not there yet."""
    settings = {"BACKFILL_CLOCK": SMALL_CLOCK} if bench.small else {}
    product = Product(home=bench.new_folder("home"), settings=settings)
    began = time.time()
    product.up()
    try:
        wait_for("the year", lambda: is_complete(product), seconds=LONGEST_SECONDS)
        return wait_for("the end of all runs", lambda: _year(product, began), seconds=60)
    finally:
        product.stop()
        product.end()


def is_complete(product: Product) -> bool:
    """Return whether ``up`` has said that the flights are complete."""
    lines = product.output.splitlines()
    return any(line.startswith(f"{FLIGHTS.name}:") and "complete" in line for line in lines)


def a_sample(bench: Bench, variables: dict[str, str], *, last_day: str = WHOLE) -> Found:
    """Have plain Dagster make two categories of a month in one run."""
    if bench.small:
        return single_run(bench, CATEGORIES[:1], "2013-01-01", variables)
    return single_run(bench, CATEGORIES, last_day, variables)


def linearity(bench: Bench, kind: str, found: list[Found]) -> str:
    """Say on what plain Dagster was measured, and that half of it costs half."""
    counts = f"{found[0].partitions:,} partitions"
    if kind == "each" or bench.small:
        return f"plain Dagster's daemon, queue, launcher and executor; {counts}"
    half = a_sample(bench, BATCHED if kind == "batched" else {}, last_day=HALF)
    return (
        f"plain Dagster made two categories of a month ({counts}, without its start) at "
        f"{found[0].milliseconds_each:.1f} ms each; half of them at "
        f"{half.milliseconds_each:.1f} ms each; its assets write their files themselves, as no "
        "stock IO manager takes many partitions of one run"
    )


def _year(product: Product, began: float) -> Year | None:
    """Return what the year took, or None while a run has not ended."""
    with product.dagster() as instance:
        # The models are trained and the days released after it.
        runs = [r for r in instance.get_run_records() if run_queries(FLIGHTS, r.dagster_run)]
        first_tick = _first_tick(instance)
    if any(run.end_time is None for run in runs):
        return None
    first_run = min(run.start_time for run in runs if run.start_time is not None)
    store = product.store
    committed = store.scan(FLIGHTS).committed
    newest = committed.days()[0]
    newest_files = [p for p in committed if p.day == newest]
    newest_at = max(Path(store.location(p)).stat().st_mtime for p in newest_files)
    return Year(
        seconds=max(run.end_time for run in runs if run.end_time is not None) - began,
        partitions=len(committed),
        launch_seconds=first_run - first_tick,
        commit_seconds=newest_at - first_run,
    )


def _first_tick(instance: dg.DagsterInstance) -> float:
    """Return when the sensor was evaluated first."""
    (sensor,) = (
        state
        for state in instance.all_instigator_state()
        if state.instigator_name == f"{FLIGHTS.name}_missing_partitions_sensor"
    )
    ticks = instance.get_ticks(sensor.instigator_origin_id, sensor.selector_id)
    return min(tick.timestamp for tick in ticks)
