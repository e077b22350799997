"""The most memory that a run's process needs, for one year and for five."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from backfill_assets_tests.benchmarks.measuring import Figure, in_turns, within
from backfill_assets_tests.benchmarks.peers.environment import PROJECT

if TYPE_CHECKING:
    from backfill_assets_tests.benchmarks.bench import Bench


def run(bench: Bench) -> list[Figure]:
    """Compare 365 days with 1,825, or a few with a few more."""
    year, years = (4, 8) if bench.small else (365, 1_825)
    found = in_turns(
        {"year": lambda: peak(bench, year), "years": lambda: peak(bench, years)},
        rounds=1 if bench.small else 2,
    )
    return [
        Figure(
            what=f"peak memory of a run over {years:,} days",
            unit="MB",
            product=found["years"],
            against=f"a run over {year} days",
            other=found["year"],
            goal=within(1.1),
            note=f"one category, 3 units, 4 value types: {years * 12:,} files in one run",
        )
    ]


def peak(bench: Bench, days: int) -> float:
    """Execute a run in a process of its own, and return the megabytes that it had at most."""
    work = {
        "days": days,
        "store": str(bench.new_folder("store")),
        "home": str(bench.new_folder("dagster")),
        "url": bench.workshop.create(),
    }
    done = subprocess.run(
        [sys.executable, "-m", "backfill_assets_tests.benchmarks.one_run"],
        cwd=PROJECT,
        input=json.dumps(work),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["committed"] == days * 12
    return float(found["megabytes"])
