"""Starting: how long the code location takes to be imported and loaded, and what of."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

from backfill_assets_tests.benchmarks.measuring import Figure, in_turns
from backfill_assets_tests.benchmarks.peers.environment import PROJECT

if TYPE_CHECKING:
    from backfill_assets_tests.benchmarks.bench import Bench

IMPORT = "import backfill_assets.definitions"
LOAD = "from backfill_assets.definitions import defs; defs.get_repository_def().get_all_jobs()"
NAMED = 5  # packages
_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)")


def run(bench: Bench) -> list[Figure]:
    """Measure whole interpreters, from nothing to the loaded code location."""
    seconds = in_turns(
        {
            "product": lambda: python("-c", LOAD),
            "import": lambda: python("-c", IMPORT),
            "Dagster": lambda: python("-c", "import dagster"),
        },
        rounds=1 if bench.small else 5,
    )
    return [
        Figure(
            what="the code location, imported and loaded",
            unit="s",
            product=seconds["product"],
            against="import dagster, and nothing else",
            other=seconds["Dagster"],
            note=f"of which imports, by package: {shares()}",
        ),
        Figure(what="the code location, imported", unit="s", product=seconds["import"]),
    ]


def python(*arguments: str) -> None:
    """Run a fresh interpreter."""
    subprocess.run([sys.executable, *arguments], cwd=PROJECT, check=True)


def shares() -> str:
    """Return the packages whose own modules take the most time."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", IMPORT],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        text=True,
    )
    spent: Counter[str] = Counter()
    for microseconds, module in _LINE.findall(done.stderr):
        spent[module.partition(".")[0]] += int(microseconds)
    total = sum(spent.values())
    return ", ".join(f"{name} {time / total:.0%}" for name, time in spent.most_common(NAMED))
