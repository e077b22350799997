"""How complete a catalogue is, for people: a calendar picture, tables, and facts for scripts."""

from __future__ import annotations

import base64
import io
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from backfill_assets.core.coverage import Counts, Coverage, DayCoverage
    from backfill_assets.stores.publishing_log import Failure

COLUMNS = ("expected", "committed", "missing", "backing_off", "held", "stale", "unexpected")
DAYS_OF_WEEK = 7
MOST_WEEKS = 320  # six years of columns can still be told apart


def facts(
    coverage: Coverage, failures: Sequence[Failure] = (), seconds_left: float | None = None
) -> dict[str, Any]:
    """Return everything that is known, in values that JSON can carry."""
    plan = coverage.plan
    wanted = plan.missing | plan.restating
    closing = coverage.next_closing
    return {
        "catalogue": plan.catalogue.name,
        "now": plan.now.isoformat(),
        "latest_closed_day": plan.latest_closed_day.isoformat(),
        "complete_until": _text(coverage.complete_until),
        "oldest_hole": _text(coverage.oldest_hole),
        "next_day": _text(closing[0]) if closing else None,
        "next_day_closes_at": closing[1].isoformat() if closing else None,
        "time_left": None if seconds_left is None else duration(seconds_left),
        "completeness": coverage.total.completeness,
        "total": asdict(coverage.total),
        "queries": {name: asdict(counts) for name, counts in coverage.by_query().items()},
        "units": {name: asdict(counts) for name, counts in coverage.by_unit().items()},
        "failures": [_failure_facts(f) for f in failures if f.partition in wanted],
    }


def markdown(counts: Mapping[str, Counts], what: str) -> str:
    """Return a table of counts; ``what`` heads the first column."""
    heading = [what, *(name.replace("_", " ") for name in COLUMNS), "complete"]
    lines = ["| " + " | ".join(heading) + " |", "|---|" + "---:|" * (len(heading) - 1)]
    for name, row in counts.items():
        cells = [str(getattr(row, column)) for column in COLUMNS]
        lines.append("| " + " | ".join([name, *cells, percent(row.committed, row.expected)]) + " |")
    return "\n".join(lines)


def calendar_markdown(coverage: Coverage) -> str:
    """Return the calendar as a picture that Dagster's pages show."""
    data = base64.b64encode(calendar_png(coverage.by_day())).decode()
    return f"![calendar of {coverage.plan.catalogue.name}](data:image/png;base64,{data})"


def calendar_png(days: Mapping[date, DayCoverage]) -> bytes:
    """Return a calendar heat map: a column for each week, a cell for each day.

    Green is complete, red is empty, and in between is in between; a day that is all held is grey.
    """
    # Only here: the import takes most of a second, and runs that commit partitions need none of it.
    from matplotlib.figure import Figure  # noqa: PLC0415

    weeks = _weeks(list(days)[: MOST_WEEKS * DAYS_OF_WEEK])
    figure = Figure(figsize=(max(4.0, 0.17 * len(weeks) + 0.8), 1.9), dpi=110)
    axes = figure.add_subplot()
    for column, week in enumerate(weeks):
        for day in week:
            colour = _colour(days[day])
            axes.add_patch(_cell(column, day.weekday(), colour))
    axes.set_xlim(-0.2, max(len(weeks), 1))
    axes.set_ylim(DAYS_OF_WEEK, -0.2)
    axes.set_aspect("equal")
    axes.set_yticks([0.4, 2.4, 4.4, 6.4], ["Mon", "Wed", "Fri", "Sun"], fontsize=7)
    ticks = _month_ticks(weeks)
    axes.set_xticks([place + 0.4 for place, _ in ticks], [name for _, name in ticks], fontsize=7)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})
    return buffer.getvalue()


def _cell(column: int, row: int, colour: tuple[float, float, float]) -> Any:
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    return Rectangle((column, row), 0.85, 0.85, facecolor=colour)


def _colour(day: DayCoverage) -> tuple[float, float, float]:
    if day.expected and day.held == day.expected:
        return (0.62, 0.62, 0.66)
    share = day.committed / day.expected if day.expected else 1.0
    empty, full = (0.86, 0.27, 0.24), (0.20, 0.66, 0.33)
    if 0 < share < 1:
        empty = (0.98, 0.82, 0.35)  # begun: from yellow to green
    red, green, blue = (e + (f - e) * share for e, f in zip(empty, full, strict=True))
    return (red, green, blue)


def _weeks(days: Sequence[date]) -> list[list[date]]:
    """Return the days by week, oldest week first; a week begins on Monday."""
    weeks: dict[date, list[date]] = {}
    for day in sorted(days):
        weeks.setdefault(day - timedelta(days=day.weekday()), []).append(day)
    if not weeks:
        return []
    monday, last = min(weeks), max(weeks)
    every = []
    while monday <= last:
        every.append(weeks.get(monday, []))
        monday += timedelta(days=DAYS_OF_WEEK)
    return every


def _month_ticks(weeks: Sequence[Sequence[date]]) -> list[tuple[int, str]]:
    """Return the column in which each month begins, and its name; years where there are many."""
    form = "%b %Y" if len(weeks) <= 60 else "%Y"
    ticks: list[tuple[int, str]] = []
    for column, week in enumerate(weeks):
        if week and (name := f"{week[0]:{form}}") not in {known for _, known in ticks}:
            ticks.append((column, name))
    return ticks[:: max(1, len(ticks) // 8)]


def percent(committed: int, expected: int) -> str:
    """Return a share for people: 100 % is only what is whole."""
    hundredths = 10_000 * committed // expected if expected else 10_000
    return f"{hundredths / 100:.2f}%"


def duration(seconds: float) -> str:
    """Return a duration for people, to two of its units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _failure_facts(failure: Failure) -> dict[str, Any]:
    return {
        "partition": str(failure.partition),
        "attempts": failure.attempts,
        "error": failure.error,
        "retry_at": failure.retry_at.isoformat(),
        "needs_a_person": failure.needs_a_person,
    }


def _text(day: date | None) -> str | None:
    return None if day is None else day.isoformat()
