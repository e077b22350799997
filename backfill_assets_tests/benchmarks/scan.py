"""Scan and plan, everything committed, beside a bare walk and what others ask instead."""

from __future__ import annotations

import os
import time
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import expected_partitions, make_plan
from backfill_assets.resources.run_requests import asset_key
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.files.looks import SETTLE_SECONDS
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.benchmarks.measuring import Figure, faster, in_turns, under, within
from backfill_assets_tests.benchmarks.peers.environment import run_peer
from backfill_assets_tests.benchmarks.remembered import remember

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets_tests.benchmarks.bench import Bench

LUIGI = "Luigi: RangeDaily with bulk_complete over one listing, for every query and unit"
DAGSTER = "Dagster: get_materialized_partitions of every asset"
ROUNDS = 5
ASKED = 2  # assets whose partitions Dagster is asked for; the others would take as long


def run(bench: Bench) -> list[Figure]:
    """Compare on a million partitions, or on a few."""
    size = {"days": 20, "units": 5, "queries": 4} if bench.small else work.MILLION
    catalogue = work.a_catalogue(**size)
    store = LocalPartitionStore(bench.new_folder("store"), [catalogue])
    store.prepare()
    work.plant(store.root, catalogue)
    asked = [asset_key(query) for query in catalogue.queries[:ASKED]]
    url = bench.workshop.create()
    with bench.dagster(url) as instance:
        remember(instance, url, catalogue, asked)

        def dagster() -> None:
            for key in asked:
                assert len(instance.get_materialized_partitions(key)) > size["days"] * size["units"]

        rounds = 1 if bench.small else ROUNDS

        def product() -> None:
            scan_and_plan(LocalPartitionStore(store.root, [catalogue]), catalogue)

        beside_walk = in_turns(
            {
                "product": product,
                "walk": lambda: _check(walk(str(store.root / catalogue.name)), size),
            },
            rounds=rounds,
            clock=time.process_time,
        )
        look_until_settled(bench, partial(scan_and_plan, store, catalogue))
        seconds = in_turns(
            {
                "product": product,
                "product again": partial(scan_and_plan, store, catalogue),
                "Luigi": lambda: run_peer("luigi_complete", root=store.root, **size)["seconds"],
                "Dagster": dagster,
            },
            rounds=rounds,
        )
    every = [one * len(catalogue.queries) / len(asked) for one in seconds["Dagster"]]
    what = f"scan and plan, {size['days'] * size['units'] * size['queries']:,} partitions"
    ours = seconds["product"]
    return [
        Figure(
            what=what,
            unit="s of processor",
            product=beside_walk["product"],
            against="a bare os.scandir walk",
            other=beside_walk["walk"],
            goal=within(1.3),
        ),
        Figure(
            what=what,
            unit="s",
            product=ours,
            against=LUIGI,
            other=seconds["Luigi"],
            goal=faster(5),
        ),
        Figure(
            what=f"{what}, as every tick does it after the first ones",
            unit="s",
            product=seconds["product again"],
            against=DAGSTER,
            other=every,
            goal=faster(50),
            note="the folders' times are asked for, and what has changed is read; "
            f"Dagster was asked for {ASKED} of {size['queries']} assets; × the rest",
        ),
        Figure(
            what=f"{what}, in a process that begins",
            unit="s",
            product=ours,
            against=DAGSTER,
            other=every,
        ),
        Figure(
            what="memory of the sets of all these partitions and of their plan",
            unit="MB",
            product=[megabytes_of_sets(store.root, catalogue)],
            goal=under(50),
        ),
    ]


def look_until_settled(bench: Bench, look: Callable[[], None]) -> None:
    """Look as often as the sensor does before it trusts that the folders stand still."""
    for _ in range(3):
        look()
        time.sleep(0 if bench.small else SETTLE_SECONDS + 0.5)


def scan_and_plan(store: LocalPartitionStore, catalogue: Catalogue) -> None:
    """Do what a tick of the sensor does first."""
    inventory = store.scan(catalogue)
    plan = make_plan(
        catalogue,
        present=inventory.committed,
        held=inventory.held,
        in_flight=PartitionSet.empty(catalogue),
        now=work.NOW,
    )
    assert plan.committed
    assert not plan.missing


def walk(folder: str) -> int:
    """Count the files below a folder with nothing but ``os.scandir``."""
    count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                count += walk(entry.path)
            else:
                count += 1
    return count


def megabytes_of_sets(root: Path, catalogue: Catalogue) -> float:
    """Return the most memory that scanning and planning held at once, all that is kept included."""
    store = LocalPartitionStore(root, [catalogue])
    expected_partitions.cache_clear()
    tracemalloc.start()
    for _ in range(3):
        scan_and_plan(store, catalogue)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20


def _check(found: int, size: dict[str, int]) -> None:
    assert found == size["days"] * size["units"] * size["queries"]
