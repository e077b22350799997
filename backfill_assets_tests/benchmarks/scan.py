"""Scan and plan, everything committed, beside a bare walk of the same folders."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import make_plan
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.benchmarks.measuring import Comparison, compare

if TYPE_CHECKING:
    from pathlib import Path


def run(folder: Path, *, small: bool) -> Comparison:
    """Compare on a million partitions, or on a few."""
    days, units, queries = (20, 5, 4) if small else (1_097, 57, 16)
    catalogue = work.a_catalogue(days=days, units=units, queries=queries)
    store = LocalPartitionStore(folder / "store", [catalogue])
    store.prepare()
    work.plant(store.root, catalogue)

    def scan_and_plan() -> None:
        inventory = store.scan(catalogue)
        plan = make_plan(
            catalogue,
            present=inventory.committed,
            held=inventory.held,
            in_flight=PartitionSet.empty(catalogue),
            now=work.NOW,
        )
        assert len(plan.committed) == days * units * queries
        assert not plan.missing

    return compare(
        "scan",
        {"scan and plan": scan_and_plan, "os.scandir walk": lambda: walk(str(store.root))},
        unit="partition",
        parts=days * units * queries,
        rounds=2 if small else 5,
    )


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
