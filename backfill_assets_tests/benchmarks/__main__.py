"""Run the comparisons, print a table, and write ``.backfill/benchmarks.json``."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from backfill_assets_tests.benchmarks.measuring import Comparison

COMPARISONS = ("scan", "publish")
RESULTS = Path(".backfill/benchmarks.json")


def run(name: str, *, small: bool = False) -> Comparison:
    """Run one comparison in a folder of its own, on the disk that the store would be on."""
    Path(".backfill").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".backfill") as folder:
        module = import_module(f"backfill_assets_tests.benchmarks.{name}")
        found: Comparison = module.run(Path(folder).resolve(), small=small)
        return found


def main(names: list[str]) -> None:
    """Run the named comparisons, or all."""
    unknown = set(names) - set(COMPARISONS)
    if unknown:
        sys.exit(f"no comparison {min(unknown)!r}; there are {', '.join(COMPARISONS)}")
    results = [run(name) for name in names or COMPARISONS]
    table = Table("comparison", "candidate", "per part", "times the product", title=_machine())
    for result in results:
        for candidate, seconds in result.medians.items():
            ratio = result.ratios().get(candidate)
            table.add_row(
                f"{result.name}, {result.parts:,} {result.unit}s",
                candidate,
                f"{seconds / result.parts * 1e6:,.1f} µs",
                "" if ratio is None else f"{ratio:.2f}",
            )
        table.add_section()
    Console().print(table)
    facts = [{"name": r.name, "parts": r.parts, "seconds": dict(r.seconds)} for r in results]
    RESULTS.write_text(json.dumps({"machine": _machine(), "results": facts}, indent=2))


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main(sys.argv[1:])
