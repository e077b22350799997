"""How plans, coverages, leftovers and sagas look in a terminal."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.measure import Measurement
from rich.segment import Segments
from rich.table import Table

from backfill_assets.resources.coverage_report import COLUMNS, percent
from backfill_assets.resources.run_requests import describe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from backfill_assets.core.agreement import Agreement
    from backfill_assets.core.cycles import Bounds
    from backfill_assets.core.plan import Plan
    from backfill_assets.stores.sagas.rows import Saga

CYCLES_SHOWN = 5
SELDOM = frozenset({"backing_off", "held", "stale", "unexpected"})  # left out where there is none
WIDEST = 1_000  # characters of a table; none is as wide
PATHS_SHOWN = 10  # of each kind; --json has them all


def plan_facts(one: Plan, bounds: Bounds) -> dict[str, Any]:
    """Return a plan in values that JSON can carry."""
    return {
        "catalogue": one.catalogue.name,
        "now": one.now.isoformat(),
        "latest_closed_day": one.latest_closed_day.isoformat(),
        "expected": len(one.expected),
        "committed": len(one.committed),
        "held": len(one.held),
        "missing": len(one.missing),
        "unexpected": len(one.unexpected),
        "cycles": [
            {
                "first_day": cycle.first_day.isoformat(),
                "last_day": cycle.last_day.isoformat(),
                "queries": [query.name for query in cycle.queries],
                "units": cycle.units,
                "partitions": len(cycle.partitions),
                "cut_by": cycle.cut_by,
            }
            for cycle in one.cycles(bounds)
        ],
    }


def print_plan(out: Console, one: Plan, bounds: Bounds) -> None:
    """Print what stands, what is missing, and the first cycles."""
    closed = one.latest_closed_day
    out.print(f"{one.catalogue.name} at {one.now:%Y-%m-%d %H:%M %Z}: closed up to {closed}")
    out.print(
        f"{len(one.committed)} of {len(one.expected)} committed, {len(one.missing)} missing, "
        f"{len(one.held)} held, {len(one.unexpected)} unexpected"
    )
    cycles = list(one.cycles(bounds))
    for cycle in cycles[:CYCLES_SHOWN]:
        cut = f", cut by {cycle.cut_by}" if cycle.cut_by else ""
        out.print(f"  {describe(cycle)}{cut}", soft_wrap=True)
    if len(cycles) > CYCLES_SHOWN:
        out.print(f"  and {len(cycles) - CYCLES_SHOWN} cycles more")


def print_status(out: Console, known: dict[str, Any]) -> None:
    """Print the facts of a coverage as tables."""
    _print_whole(out, _table_of_counts(known))
    for name in ("time_left", "complete_until", "oldest_hole", "next_day", "next_day_closes_at"):
        out.print(f"{name.replace('_', ' ')}: {known[name] or 'none'}", highlight=False)
    for failure in known["failures"]:
        out.print(
            f"{failure['partition']}: {failure['attempts']} attempts, next after "
            f"{failure['retry_at']}: {failure['error']}",
            style="red" if failure["needs_a_person"] else "yellow",
            soft_wrap=True,
        )


def _table_of_counts(known: dict[str, Any]) -> Table:
    """Return the counts by query and unit."""
    columns = [name for name in COLUMNS if name not in SELDOM or known["total"][name]]
    title = f"{known['catalogue']}, closed up to {known['latest_closed_day']}"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("query or unit")
    for name in (*columns, "complete"):
        table.add_column(name.replace("_", " "), justify="right")
    for group in (known["queries"], known["units"], {"all": known["total"]}):
        for name, counts in group.items():
            share = percent(counts["committed"], counts["expected"])
            table.add_row(name, *(str(counts[column]) for column in columns), share)
        table.add_section()
    return table


def _print_whole(out: Console, table: Table) -> None:
    """Print a table as wide as it is: a narrower terminal wraps its lines, and nothing is cut."""
    width = Measurement.get(out, out.options.update(max_width=WIDEST), table).maximum
    lines = out.render(table, out.options.update(width=width))
    out.print(Segments(lines), crop=False)


def print_pruning(out: Console, err: Console, known: dict[str, Any]) -> None:
    """Print what a catalogue does not ask for any more."""
    table = Table(title=f"{known['catalogue']}: not asked for any more")
    for name in ("", "files", "folders", "bytes"):
        table.add_column(name, justify="left" if name == "" else "right")
    for kind, found in known["kinds"].items():
        table.add_row(kind, *(f"{found[name]:,}" for name in ("files", "folders", "bytes")))
    if known["kinds"]:
        _print_whole(out, table)
    else:
        out.print(f"{known['catalogue']}: nothing to prune")
    for kind, found in known["kinds"].items():
        out.print(f"{kind}:")
        print_paths(out, found["paths"], len(found["paths"]))
    if known["kept"]:
        out.print("kept all the same, as holds, symlinks or other devices:")
        print_paths(out, known["kept"], len(known["kept"]))
    for warning in known["warnings"]:
        err.print(warning, style="yellow", soft_wrap=True, highlight=False)


def print_paths(out: Console, lines: Iterable[str], count: int) -> None:
    """Print the first of some lines, and how many more there are."""
    for line in islice(lines, PATHS_SHOWN):
        # A name of other bytes than UTF-8 is shown as far as it can be.
        out.print(
            f"  {line.encode(errors='replace').decode()}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
    if count > PATHS_SHOWN:
        out.print(f"  and {count - PATHS_SHOWN} more; --json names them all")


def print_agreement(console: Console, catalogue: str, agreement: Agreement) -> None:
    """Print where the log database and the files differ, and what was mended."""
    kinds = agreement.by_fault()
    for kind, names in kinds.items():
        console.print(f"{catalogue}: {len(names)} {kind}")
        for name in names[:PATHS_SHOWN]:
            console.print(f"  {name}", soft_wrap=True, highlight=False)
    for repair in agreement.repairs:
        console.print(repair, soft_wrap=True, highlight=False)
    if agreement.unlogged:
        console.print(
            f"{catalogue}: {agreement.unlogged} committed partitions without a completed attempt "
            "in the log: they were adopted, or the log is younger or was restored",
            soft_wrap=True,
        )
    if not kinds:
        console.print(f"{catalogue}: the log database agrees with the files")


def saga_facts(saga: Saga) -> dict[str, Any]:
    """Return a line about a saga in values that JSON can carry."""
    return {
        "saga": saga.saga_id,
        "status": str(saga.status),
        "version": saga.version,
        "due_at": None if saga.due_at is None else saga.due_at.isoformat(),
        "question": None if saga.question is None else saga.question.reason,
        "created_at": saga.created_at.isoformat(),
        "updated_at": saga.updated_at.isoformat(),
    }


def print_saga(out: Console, saga: Saga) -> None:
    """Print a line about a saga, and what it asks."""
    since = f"{saga.updated_at:%Y-%m-%d %H:%M:%S}"
    line = f"{saga.saga_id} is {saga.status} since {since} UTC, version {saga.version}"
    out.print(line, soft_wrap=True, highlight=False, markup=False)
    if saga.question is not None:
        asked = f"  {saga.question.reason}; `backfill-assets saga show {saga.saga_id}`"
        out.print(asked, soft_wrap=True, highlight=False, markup=False)
