"""Commands about released days."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from backfill_assets.cli.screen import NO, Json, out, print_json
from backfill_assets.core.errors import SettingsError
from backfill_assets.core.partitions import parse_day
from backfill_assets.core.sagas import SagaStatus
from backfill_assets.defs.bindings import project
from backfill_assets.resources import terminal
from backfill_assets.resources.releases import Releasing, releasing_of

app = typer.Typer()


@app.command()
def retract(
    catalogue: Annotated[str, typer.Argument(help="Of the day.")],
    day: Annotated[str, typer.Argument(help="YYYY-MM-DD")],
    reason: Annotated[str, typer.Option(help="Why; subscribers and holds repeat it.")],
    who: Annotated[str | None, typer.Option(help="Who; you, by your login, unless said.")] = None,
) -> None:
    """Take a released day back: rows, manifest and files; subscribers are told."""
    parsed = parse_day(day)
    if parsed is None:
        message = f"day {day!r}: expected YYYY-MM-DD"
        raise SettingsError(message)
    undone = _releasing().retract(catalogue, parsed, who=who or getpass.getuser(), why=reason)
    for saga in undone:
        out.print(f"{saga.saga_id} is {saga.status}")
        if saga.question is not None:
            out.print(saga.question.reason, soft_wrap=True)
    raise typer.Exit(0 if all(s.status is SagaStatus.COMPENSATED for s in undone) else NO)


@app.command()
def reconcile(
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend rows and manifests, from the files.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare the rows and manifests of released days with the files."""
    found = {c.name: _releasing().reconcile(c, repair=repair) for c in project().catalogues}
    if as_json:
        print_json({n: {"findings": a.by_fault(), "repairs": a.repairs} for n, a in found.items()})
    for name, agreement in [] if as_json else found.items():
        terminal.print_agreement(out, name, agreement)
    if repair:
        found = {c.name: _releasing().reconcile(c) for c in project().catalogues}
    raise typer.Exit(NO if any(agreement.findings for agreement in found.values()) else 0)


def _releasing() -> Releasing:
    found = releasing_of(project())
    if found is None:
        message = "this project releases no days; see defs/bindings.py"
        raise SettingsError(message)
    return found
