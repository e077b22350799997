"""Commands about partitions: their states and attempts, and what a person decides about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from backfill_assets.cli.screen import NO, Json, err, out, print_json
from backfill_assets.core.coverage import Coverage
from backfill_assets.core.errors import SettingsError
from backfill_assets.core.plan import State
from backfill_assets.core.selection import FORM
from backfill_assets.defs.bindings import SCORING, project
from backfill_assets.resources import operations, terminal, trails
from backfill_assets.resources.clock import parse_instant
from backfill_assets.resources.coverage_report import facts
from backfill_assets.stores.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.core.plan import Plan
    from backfill_assets.stores.publishing_log import Failure

app = typer.Typer()


@app.command()
def plan(
    at: Annotated[str | None, typer.Option(help="Plan for this instant, not for now.")] = None,
    explain: Annotated[
        str | None,
        typer.Option(metavar="PARTITION", help="Say why this partition is in its state."),
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Show what the next cycles would do. Works from the files alone."""
    plans = _plans(at)
    if explain is not None:
        _explain(plans, explain, as_json=as_json)
        return
    if as_json:
        print_json([terminal.plan_facts(p, project().bounds) for p in plans])
    for one in [] if as_json else plans:
        terminal.print_plan(out, one, project().bounds)
    raise typer.Exit(NO if any(p.missing for p in plans) else 0)


@app.command()
def status(*, as_json: Json = False) -> None:
    """Show how complete each query is, and what keeps the rest. Works from the files alone."""
    plans = _plans(None)
    known = [facts(Coverage(one), _failures(one), project().seconds_left(one)) for one in plans]
    if as_json:
        print_json(known)
    for one in [] if as_json else known:
        terminal.print_status(out, one)
    raise typer.Exit(NO if any(p.missing for p in plans) else 0)


@app.command()
def hold(
    partitions: Annotated[str, typer.Argument(help=FORM)],
    reason: Annotated[str, typer.Option(help="Why; whoever meets the hold reads it.")],
) -> None:
    """Withdraw partitions, and keep them withdrawn through every tick until they are released."""
    out.print(f"Held {operations.hold(project(), partitions, reason)}")


@app.command()
def release(partitions: Annotated[str, typer.Argument(help=FORM)]) -> None:
    """Make held partitions missing again; the next tick makes them."""
    out.print(f"Released {operations.release(project(), partitions)}")


@app.command()
def restate(partitions: Annotated[str, typer.Argument(help=FORM)]) -> None:
    """Have committed partitions made again and replaced: after missing work, newest first."""
    out.print(f"To be restated: {operations.restate(project(), partitions)}")


@app.command()
def trail(
    key: Annotated[str, typer.Argument(help=trails.FORM)],
    *,
    as_json: Json = False,
) -> None:
    """Show everything known about one item: all its operations, all attempts, and their reasons."""
    found = trails.trail(project(), SCORING.log(), key)
    if as_json:
        print_json(trails.trail_facts(found))
    elif found:
        trails.print_trail(out, found)
    else:
        err.print(f"Nothing is known of {key!r}; give {trails.FORM}", soft_wrap=True)
    raise typer.Exit(0 if found else NO)


def _plans(at: str | None) -> list[Plan]:
    if at is None:
        return [project().plan(catalogue) for catalogue in project().catalogues]
    try:
        now = parse_instant(at)
    except ValueError as error:
        message = f"--at {at!r} {error}: give one with an offset, such as 2013-08-04T00:40-04:00"
        raise SettingsError(message) from None
    return [project().plan(catalogue, now=now) for catalogue in project().catalogues]


def _explain(plans: Sequence[Plan], text: str, *, as_json: bool) -> None:
    name = text.split("/", 1)[0]
    one = next((p for p in plans if p.catalogue.name == name), plans[0])
    partition = one.catalogue.parse(text)
    state, reason = one.explain(partition)
    if state is State.HELD:
        reason = project().store.hold_reason(partition) or reason
    if as_json:
        print_json({"partition": str(partition), "state": state, "reason": reason})
    else:
        out.print(f"{partition} is {state}: {reason}", soft_wrap=True)
        out.print(project().store.location(partition), soft_wrap=True, style="dim")


def _failures(one: Plan) -> list[Failure]:
    """Return what failed lately, where its memory can be asked; the files do not need it."""
    try:
        return project().failures(one.catalogue)
    except PostgresError as error:
        err.print(f"What failed lately is not known: {error}", style="dim", soft_wrap=True)
        return []
