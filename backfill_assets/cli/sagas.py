"""Commands about sagas: looking at them, and deciding about those that wait for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from backfill_assets.cli.screen import NO, Json, out, person, print_json
from backfill_assets.core.errors import SettingsError
from backfill_assets.core.sagas import Choice, SagaStatus  # noqa: TC001 - typer reads them
from backfill_assets.defs.bindings import project
from backfill_assets.resources import terminal

if TYPE_CHECKING:
    from backfill_assets.resources.saga_desk import SagaDesk

SagaId = Annotated[str, typer.Argument(metavar="SAGA", help="Its name, a slash, its key.")]
Why = Annotated[str, typer.Option(help="Why; it stands in the saga's journal.")]
Who = Annotated[str | None, typer.Option(help="Who decides; your login, unless said.")]

app = typer.Typer(no_args_is_help=True, help="Look at sagas, and decide about them.")


@app.command("list")
def list_sagas(
    status: Annotated[SagaStatus | None, typer.Option(help="Only those that stand so.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """List sagas, the newest first."""
    found = _desk().sagas.find(statuses=[status] if status else [])
    if as_json:
        print_json([terminal.saga_facts(saga) for saga in found])
    for saga in [] if as_json else found:
        terminal.print_saga(out, saga)
    raise typer.Exit(NO if any(saga.question for saga in found) else 0)


@app.command("show")
def show_saga(saga: SagaId, *, as_json: Json = False) -> None:
    """Show everything that is known of a saga, and the command for each choice that is open."""
    case = _desk().sagas.case_file(saga)
    if as_json:
        print_json(case.facts())
    else:
        out.print(case.markdown(), soft_wrap=True, markup=False, highlight=False)


@app.command("decide")
def decide_saga(
    saga: SagaId,
    choice: Annotated[Choice, typer.Argument(help="One of those that `saga show` names.")],
    version: Annotated[int, typer.Option(help="Of the case file that you looked at.")],
    why: Why,
    who: Who = None,
    step: Annotated[str | None, typer.Option(help="Which of several; with replace.")] = None,
    arguments: Annotated[str | None, typer.Option(help="Of replace: JSON.")] = None,
    receipt: Annotated[str | None, typer.Option(help="Of accept: JSON.")] = None,
) -> None:
    """Decide about a saga that waits for a person, and drive it on."""
    _desk().decide(
        saga,
        version,
        choice,
        who=person(who),
        why=why,
        step=step,
        arguments=arguments,
        receipt=receipt,
    )
    _print_driven(saga)


@app.command("cancel")
def cancel_saga(saga: SagaId, why: Why, who: Who = None) -> None:
    """Have everything undone that a saga did, also one that is completed."""
    _desk().cancel(saga, who=person(who), why=why)
    _print_driven(saga)


def _desk() -> SagaDesk:
    desk = project().saga_desk
    if desk is None:
        message = "this project has no sagas; name some in defs/bindings.py"
        raise SettingsError(message)
    return desk


def _print_driven(saga_id: str) -> None:
    """Drive a saga, and print where it stands; the answer is no while it asks."""
    driven = _desk().drive(saga_id)
    terminal.print_saga(out, driven)
    raise typer.Exit(NO if driven.question else 0)
