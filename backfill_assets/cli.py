"""``backfill-assets …``: what a terminal can ask and do.

Exit codes: 0 done; 1 an error, with what to do about it; 2 a wrong command line; 3 the answer is
no: something is missing, or a file is not sound.
"""

from __future__ import annotations

import getpass
import json
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from backfill_assets.core.coverage import Coverage
from backfill_assets.core.errors import (
    BackfillAssetsError,
    CorruptPartitionError,
    MissingPartitionError,
    SettingsError,
)
from backfill_assets.core.partitions import parse_day
from backfill_assets.core.plan import State
from backfill_assets.core.sagas import Choice, SagaStatus
from backfill_assets.core.selection import FORM
from backfill_assets.defs.bindings import SCORING, project
from backfill_assets.resources import operations, pruning, terminal, trails
from backfill_assets.resources.adoption import adopt as adopt_tree
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.coverage_report import facts
from backfill_assets.resources.known_stores import begin_store
from backfill_assets.resources.progress_view import ProgressView, bar
from backfill_assets.resources.releases import Releasing, releasing_of
from backfill_assets.resources.settings import log_database_url, partner_database_url, settings
from backfill_assets.stores.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.core.plan import Plan
    from backfill_assets.resources.saga_desk import SagaDesk
    from backfill_assets.stores.publishing_log import Failure

NO = 3  # exit code: the answer is no

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
saga_app = typer.Typer(no_args_is_help=True, help="Look at sagas, and decide about them.")
app.add_typer(saga_app, name="saga")
_out = Console()
_err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
SagaId = Annotated[str, typer.Argument(metavar="SAGA", help="Its name, a slash, its key.")]
Why = Annotated[str, typer.Option(help="Why; it stands in the saga's journal.")]
Who = Annotated[str | None, typer.Option(help="Who decides; your login, unless said.")]


@app.command()
def up(
    port: Annotated[int, typer.Option(help="Where Dagster's pages are, on this machine.")] = 3000,
    *,
    until_complete: Annotated[
        bool, typer.Option("--until-complete", help="Stop when nothing is missing any more.")
    ] = False,
) -> None:
    """Start PostgreSQL and Dagster, and watch history complete itself. Ctrl-C stops everything."""
    # Not at the top: what needs no Dagster database answers two seconds earlier without it.
    from backfill_assets.resources.up import Up  # noqa: PLC0415

    view = ProgressView(_out)
    with view:
        is_complete = Up(settings(), project(), view.say).run(
            port, view.show, until_complete=until_complete
        )
    raise typer.Exit(0 if is_complete or not until_complete else NO)


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
        _print_json([terminal.plan_facts(p, project().bounds) for p in plans])
    for one in [] if as_json else plans:
        terminal.print_plan(_out, one, project().bounds)
    raise typer.Exit(NO if any(p.missing for p in plans) else 0)


@app.command()
def status(*, as_json: Json = False) -> None:
    """Show how complete each query is, and what keeps the rest. Works from the files alone."""
    plans = _plans(None)
    known = [facts(Coverage(one), _failures(one), project().seconds_left(one)) for one in plans]
    if as_json:
        _print_json(known)
    for one in [] if as_json else known:
        terminal.print_status(_out, one)
    raise typer.Exit(NO if any(p.missing for p in plans) else 0)


@app.command()
def hold(
    partitions: Annotated[str, typer.Argument(help=FORM)],
    reason: Annotated[str, typer.Option(help="Why; whoever meets the hold reads it.")],
) -> None:
    """Withdraw partitions, and keep them withdrawn through every tick until they are released."""
    _out.print(f"Held {operations.hold(project(), partitions, reason)}")


@app.command()
def release(partitions: Annotated[str, typer.Argument(help=FORM)]) -> None:
    """Make held partitions missing again; the next tick makes them."""
    _out.print(f"Released {operations.release(project(), partitions)}")


@app.command()
def restate(partitions: Annotated[str, typer.Argument(help=FORM)]) -> None:
    """Have committed partitions made again and replaced: after missing work, newest first."""
    _out.print(f"To be restated: {operations.restate(project(), partitions)}")


@app.command()
def adopt(
    directory: Annotated[Path, typer.Argument(help="Holds files in the store's layout.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, and change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Take in existing files that the catalogue expects, after checking each; copies, newest first.

    Can be killed and repeated. The next ticks report what was taken in to Dagster.
    """
    if not dry_run:
        begin_store(project().store, settings().store_root, settings().known_stores)
    with bar(_err, disable=as_json) as progress:
        task = progress.add_task("adopt", total=None, more="")
        outcome = adopt_tree(
            project(),
            directory,
            dry_run=dry_run,
            on_progress=lambda done, count: progress.update(task, completed=done, total=count),
        )
    if as_json:
        _print_json(outcome.facts() | {"dry_run": dry_run})
    else:
        refused = (f"{one.path}: {one.reason}" for one in outcome.refused)
        terminal.print_paths(_err, refused, len(outcome.refused))
        _out.print(
            f"{outcome.adopted} files {'would be ' if dry_run else ''}adopted, "
            f"{outcome.stood_already} stood committed already, {len(outcome.refused)} refused"
        )
    raise typer.Exit(NO if outcome.refused else 0)


@app.command()
def prune(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without it, only say what.")] = False,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Only old versions of queries.")
    ] = False,
    unexpected: Annotated[
        bool, typer.Option("--unexpected", help="Only what no catalogue asks for.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what the catalogues do not ask for any more; remove it with --yes. Never a hold."""
    kinds = pruning.kinds(superseded=superseded, unexpected=unexpected)
    found = pruning.prunings(project(), kinds)
    if not as_json:
        for one in found:
            terminal.print_pruning(_out, _err, one.facts())
    count = sum(len(one.leftovers) for one in found)
    removed = 0
    if yes:
        with bar(_err, disable=as_json) as progress:
            task = progress.add_task("prune", total=count, more="")
            for one in found:
                removed += pruning.prune(project(), one, lambda n: progress.advance(task, n))
    if as_json:
        _print_json({"removed": removed, "catalogues": [one.facts() for one in found]})
    elif yes:
        _out.print(f"{removed} of {count} files and folders removed")
    elif count:
        _out.print("Nothing was removed; `backfill-assets prune --yes` removes it")


@app.command()
def verify(*, as_json: Json = False) -> None:
    """Read every committed file, and check digest, schema and key."""
    unsound: list[str] = []
    checked = 0
    for catalogue in project().catalogues:
        committed = project().store.scan(catalogue).committed
        with bar(_err, disable=as_json) as progress:
            task = progress.add_task(catalogue.name, total=len(committed), more="")
            for partition in committed:
                try:
                    project().store.verify(partition)
                except (CorruptPartitionError, MissingPartitionError) as error:
                    unsound.append(str(error))
                checked += 1
                progress.advance(task)
    if as_json:
        _print_json({"checked": checked, "unsound": unsound})
    else:
        for message in unsound:
            _err.print(message, style="red", soft_wrap=True)
        _out.print(f"{checked} files checked, {len(unsound)} unsound")
    raise typer.Exit(NO if unsound else 0)


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
        _out.print(f"{saga.saga_id} is {saga.status}")
        if saga.question is not None:
            _out.print(saga.question.reason, soft_wrap=True)
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
        _print_json({n: {"findings": a.by_fault(), "repairs": a.repairs} for n, a in found.items()})
    for name, agreement in [] if as_json else found.items():
        terminal.print_agreement(_out, name, agreement)
    if repair:
        found = {c.name: _releasing().reconcile(c) for c in project().catalogues}
    raise typer.Exit(NO if any(agreement.findings for agreement in found.values()) else 0)


@app.command()
def sweep() -> None:
    """Remove what dead attempts left behind. Every run does this by itself."""
    _out.print(f"{project().store.sweep()} dead attempts removed")


@app.command()
def trail(
    key: Annotated[str, typer.Argument(help=trails.FORM)],
    *,
    as_json: Json = False,
) -> None:
    """Show everything known about one item: all its operations, all attempts, and their reasons."""
    found = trails.trail(project(), SCORING.log(), key)
    if as_json:
        _print_json(trails.trail_facts(found))
    elif found:
        trails.print_trail(_out, found)
    else:
        _err.print(f"Nothing is known of {key!r}; give {trails.FORM}", soft_wrap=True)
    raise typer.Exit(0 if found else NO)


@app.command()
def serve_models() -> None:
    """Answer requests for scores, on this machine. `up` starts this when models are trained."""
    # Not at the top: the other commands answer without a web server.
    from backfill_assets.flights.models.server import SERVICE, make_app  # noqa: PLC0415
    from backfill_assets.stores.http_replies import StoredReplies  # noqa: PLC0415
    from backfill_assets.stores.http_serving import serve  # noqa: PLC0415

    chosen = settings()
    with closing(StoredReplies(log_database_url, SERVICE)) as replies:
        app = make_app(replies, SCORING.folder)
        serve(app, chosen.model_port, chosen.model_server_address)


@app.command()
def serve_hotel_partner() -> None:
    """Answer as the hotel partner of the itineraries, on this machine. `up` starts this."""
    from backfill_assets.flights.itinerary.partner_server import make_app  # noqa: PLC0415 - as above
    from backfill_assets.stores.http_serving import serve  # noqa: PLC0415

    chosen = settings()
    app = make_app(partner_database_url, RealClock().now)
    serve(app, chosen.hotel_partner_port, chosen.hotel_partner_address)


@saga_app.command("list")
def list_sagas(
    status: Annotated[SagaStatus | None, typer.Option(help="Only those that stand so.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """List sagas, the newest first."""
    found = _desk().sagas.find(statuses=[status] if status else [])
    if as_json:
        _print_json([terminal.saga_facts(saga) for saga in found])
    for saga in [] if as_json else found:
        terminal.print_saga(_out, saga)
    raise typer.Exit(NO if any(saga.question for saga in found) else 0)


@saga_app.command("show")
def show_saga(saga: SagaId, *, as_json: Json = False) -> None:
    """Show everything that is known of a saga, and the command for each choice that is open."""
    case = _desk().sagas.case_file(saga)
    if as_json:
        _print_json(case.facts())
    else:
        _out.print(case.markdown(), soft_wrap=True, markup=False, highlight=False)


@saga_app.command("decide")
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
        who=_person(who),
        why=why,
        step=step,
        arguments=arguments,
        receipt=receipt,
    )
    _print_driven(saga)


@saga_app.command("cancel")
def cancel_saga(saga: SagaId, why: Why, who: Who = None) -> None:
    """Have everything undone that a saga did, also one that is completed."""
    _desk().cancel(saga, who=_person(who), why=why)
    _print_driven(saga)


def main() -> None:
    """Run the command line; an error of ours is a sentence, not a traceback."""
    try:
        app()
    except (BackfillAssetsError, PostgresError) as error:
        _err.print(f"{type(error).__name__}: {error}", style="red", soft_wrap=True, highlight=False)
        sys.exit(1)


def _desk() -> SagaDesk:
    desk = project().saga_desk
    if desk is None:
        message = "this project has no sagas; name some in defs/bindings.py"
        raise SettingsError(message)
    return desk


def _person(who: str | None) -> str:
    try:
        return who or getpass.getuser()
    except (KeyError, OSError):
        message = "--who: this machine does not know your login; say who decides"
        raise SettingsError(message) from None


def _print_driven(saga_id: str) -> None:
    """Drive a saga, and print where it stands; the answer is no while it asks."""
    driven = _desk().drive(saga_id)
    terminal.print_saga(_out, driven)
    raise typer.Exit(NO if driven.question else 0)


def _releasing() -> Releasing:
    found = releasing_of(project())
    if found is None:
        message = "this project releases no days; see defs/bindings.py"
        raise SettingsError(message)
    return found


def _plans(at: str | None) -> list[Plan]:
    if at is None:
        return [project().plan(catalogue) for catalogue in project().catalogues]
    try:
        now = datetime.fromisoformat(at)
    except ValueError:
        now = datetime.min  # noqa: DTZ901 - refused just below
    if now.tzinfo is None:
        message = f"--at {at!r}: give an instant with an offset, such as 2013-08-04T00:40-04:00"
        raise SettingsError(message)
    return [project().plan(catalogue, now=now) for catalogue in project().catalogues]


def _explain(plans: Sequence[Plan], text: str, *, as_json: bool) -> None:
    name = text.split("/", 1)[0]
    one = next((p for p in plans if p.catalogue.name == name), plans[0])
    partition = one.catalogue.parse(text)
    state, reason = one.explain(partition)
    if state is State.HELD:
        reason = project().store.hold_reason(partition) or reason
    if as_json:
        _print_json({"partition": str(partition), "state": state, "reason": reason})
    else:
        _out.print(f"{partition} is {state}: {reason}", soft_wrap=True)
        _out.print(project().store.location(partition), soft_wrap=True, style="dim")


def _failures(one: Plan) -> list[Failure]:
    """Return what failed lately, where its memory can be asked; the files do not need it."""
    try:
        return project().failures(one.catalogue)
    except PostgresError as error:
        _err.print(f"What failed lately is not known: {error}", style="dim", soft_wrap=True)
        return []


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


if __name__ == "__main__":
    main()
