"""The table of all figures, as Markdown and as JSON, with the machine and the versions."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from backfill_assets_tests.benchmarks.measuring import Figure

HEADER = (
    "| | product | against | it | times | to reach | |",
    "|---|--:|---|--:|--:|---|---|",
)
REACHED = {True: "✓", False: "missed", None: ""}


def markdown(figures: Sequence[Figure], facts: Mapping[str, str]) -> str:
    """Return the table and, below it, how its figures were measured."""
    rows = [_row(figure) for figure in figures]
    notes = [f"* {figure.what}: {figure.note}" for figure in figures if figure.note]
    machine = ", ".join(f"{name} {value}" for name, value in facts.items())
    return "\n".join([machine, "", *HEADER, *rows, "", *dict.fromkeys(notes), ""])


def write(folder: Path, comparisons: Mapping[str, Sequence[Figure]], day: date) -> str:
    """Write ``benchmarks.md`` and ``benchmarks.json``; return the former's text.

    Figures of comparisons that were not run this time stay as they were, with their day.
    """
    path = folder / "benchmarks.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    facts = machine() | {"day": day.isoformat()}
    for name, figures in comparisons.items():
        known[name] = {"facts": facts, "figures": [_facts(figure) for figure in figures]}
    path.write_text(json.dumps(known, indent=2))
    text = "\n".join(markdown(figures, facts) for figures in comparisons.values())
    return text


def machine() -> dict[str, str]:
    """Return where the figures were measured, and with which versions."""
    packages = ("dagster", "pyarrow", "psycopg")
    return {
        "machine": f"{os.cpu_count()} cores {platform.machine()} {platform.system()}",
        "Python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def _row(figure: Figure) -> str:
    times = figure.times_faster
    cells = [
        figure.what,
        f"{_number(figure.value)} {figure.unit}",
        figure.against,
        "" if figure.other_value is None else f"{_number(figure.other_value)} {figure.unit}",
        "" if times is None else f"{times:.2f}",
        figure.goal.text if figure.goal else "",
        REACHED[figure.is_reached],
    ]
    return f"| {' | '.join(cells)} |"


def _facts(figure: Figure) -> dict[str, object]:
    goal = figure.goal.text if figure.goal else None
    return asdict(figure) | {
        "goal": goal,
        "times_faster": figure.times_faster,
        "is_reached": figure.is_reached,
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
