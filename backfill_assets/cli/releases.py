"""Commands about released days, and about what the log database says of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfill_assets.cli.screen import NO, Json, out, person, print_json
from backfill_assets.core.errors import SettingsError
from backfill_assets.core.partitions import parse_day
from backfill_assets.core.sagas import SagaStatus
from backfill_assets.defs.bindings import project
from backfill_assets.resources import terminal
from backfill_assets.resources.log_drift import reconcile_log
from backfill_assets.resources.release_desk import releasing_of

if TYPE_CHECKING:
    from backfill_assets.core.agreement import Agreement
    from backfill_assets.resources.releases import Releasing

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
    undone = _releasing().retract(catalogue, parsed, who=person(who), why=reason)
    for saga in undone:
        out.print(f"{saga.saga_id} is {saga.status}")
        if saga.question is not None:
            out.print(saga.question.reason, soft_wrap=True)
    raise typer.Exit(0 if all(s.status is SagaStatus.COMPENSATED for s in undone) else NO)


@app.command()
def reconcile(
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend the log database and manifests, from the files.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare attempts, and rows and manifests of released days, with all files."""
    found = _agreements(repair=repair)
    if as_json:
        print_json({name: _facts(agreement) for name, agreement in found.items()})
    for name, agreement in [] if as_json else found.items():
        terminal.print_agreement(out, name, agreement)
    if repair:
        found = _agreements(repair=False)
    raise typer.Exit(NO if any(agreement.findings for agreement in found.values()) else 0)


def _agreements(*, repair: bool) -> dict[str, Agreement]:
    """Return what is found, and mended, by catalogue."""
    found = {}
    releasing = releasing_of(project())
    for catalogue in project().catalogues:
        found[catalogue.name] = reconcile_log(project(), catalogue, repair=repair)
        if releasing is not None:
            found[catalogue.name].add(releasing.reconcile(catalogue, repair=repair))
    return found


def _facts(agreement: Agreement) -> dict[str, Any]:
    return {
        "findings": agreement.by_fault(),
        "repairs": agreement.repairs,
        "without_a_completed_attempt": agreement.unlogged,
    }


def _releasing() -> Releasing:
    found = releasing_of(project())
    if found is None:
        message = "this project releases no days; see defs/bindings.py"
        raise SettingsError(message)
    return found
