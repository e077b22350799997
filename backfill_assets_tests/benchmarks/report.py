"""The table of all figures, as Markdown and as JSON, with the machine, the day and the versions."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date
    from pathlib import Path

    from backfill_assets_tests.benchmarks.measuring import Figure

# In the order of the table.
COMPARISONS = (
    "year",
    "library",
    "publish",
    "adopt",
    "scan",
    "tick",
    "events",
    "log",
    "memory",
    "growth",
    "startup",
)
HEADER = (
    "| | product | against | needs | product needs | to reach | |",
    "|---|--:|---|--:|--:|---|---|",
)
REACHED = {True: "✓", False: "missed", None: ""}
PACKAGES = ("dagster", "pyarrow", "psycopg")

Facts = dict[str, Any]  # what JSON carries


def write(folder: Path, name: str, figures: Sequence[Figure], day: date) -> str:
    """Add a comparison to ``benchmarks.json`` and ``benchmarks.md``; return its own table.

    Comparisons that were not run this time stay as they were, each with its day.
    """
    path = folder / "benchmarks.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[name] = {
        "measured": measured(day),
        "figures": [facts(figure) for figure in figures],
    }
    in_order = {one: known[one] for one in COMPARISONS if one in known}
    path.write_text(json.dumps(in_order, indent=2) + "\n")
    (folder / "benchmarks.md").write_text(markdown(in_order.values()))
    return markdown([known[name]])


def markdown(comparisons: Iterable[Facts]) -> str:
    """Return one table, and below it how its figures were measured."""
    every = list(comparisons)
    figures = [figure for comparison in every for figure in comparison["figures"]]
    notes = [f"* {figure['what']}: {figure['note']}" for figure in figures if figure["note"]]
    rows = [_row(figure) for figure in figures]
    when = dict.fromkeys(comparison["measured"] for comparison in every)
    return "\n".join([*HEADER, *rows, "", *dict.fromkeys(notes), "", *when, ""])


def measured(day: date) -> str:
    """Say when and where figures were measured, and with which versions."""
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return (
        f"Measured on {day}, {os.cpu_count()} cores {platform.machine()}, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, {versions}"
    )


def facts(figure: Figure) -> Facts:
    """Return a figure in values that JSON can carry."""
    return {
        "what": figure.what,
        "unit": figure.unit,
        "product": figure.product,
        "value": figure.value,
        "against": figure.against,
        "other": figure.other,
        "other_value": figure.other_value,
        "times_faster": figure.times_faster,
        "goal": figure.goal.text if figure.goal else "",
        "is_reached": figure.is_reached,
        "note": figure.note,
    }


def _row(figure: Facts) -> str:
    cells = [
        figure["what"],
        _amount(figure["value"], figure["unit"]),
        figure["against"],
        _amount(figure["other_value"], figure["unit"]),
        _ratio(figure["times_faster"]),
        figure["goal"],
        REACHED[figure["is_reached"]],
    ]
    return f"| {' | '.join(cells)} |"


def _ratio(times: float | None) -> str:
    if times is None:
        return ""
    return f"{_number(times)} times less" if times >= 1 else f"{1 / times:.2f} times as much"


def _amount(value: float | None, unit: str) -> str:
    return "" if value is None else f"{_number(value)} {unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
