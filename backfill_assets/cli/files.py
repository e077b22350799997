"""Commands about the store's files: adopting, pruning, verifying, sweeping."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from backfill_assets.cli.screen import NO, Json, err, out, print_json
from backfill_assets.core.errors import (
    CorruptPartitionError,
    MissingPartitionError,
    StoreUnreadableError,
)
from backfill_assets.defs.bindings import project
from backfill_assets.resources import pruning, terminal
from backfill_assets.resources.adoption import adopt as adopt_tree
from backfill_assets.resources.known_stores import begin_store
from backfill_assets.resources.progress_view import bar
from backfill_assets.resources.settings import settings

app = typer.Typer()


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
    with bar(err, disable=as_json) as progress:
        task = progress.add_task("adopt", total=None, more="")
        outcome = adopt_tree(
            project(),
            directory,
            dry_run=dry_run,
            on_progress=lambda done, count: progress.update(task, completed=done, total=count),
        )
    if as_json:
        print_json(outcome.facts() | {"dry_run": dry_run})
    else:
        refused = (f"{one.path}: {one.reason}" for one in outcome.refused)
        terminal.print_paths(err, refused, len(outcome.refused))
        out.print(
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
            terminal.print_pruning(out, err, one.facts())
    count = sum(len(one.leftovers) for one in found)
    removed = 0
    if yes:
        with bar(err, disable=as_json) as progress:
            task = progress.add_task("prune", total=count, more="")
            for one in found:
                removed += pruning.prune(project(), one, lambda n: progress.advance(task, n))
    if as_json:
        print_json({"removed": removed, "catalogues": [one.facts() for one in found]})
    elif yes:
        out.print(f"{removed} of {count} files and folders removed")
    elif count:
        out.print("Nothing was removed; `backfill-assets prune --yes` removes it")


@app.command()
def verify(*, as_json: Json = False) -> None:
    """Read every committed file, and check digest, schema and key."""
    unsound: list[str] = []
    checked = 0
    for catalogue in project().catalogues:
        committed = project().store.scan(catalogue).committed
        with bar(err, disable=as_json) as progress:
            task = progress.add_task(catalogue.name, total=len(committed), more="")
            for partition in committed:
                try:
                    project().store.verify(partition)
                except (CorruptPartitionError, MissingPartitionError) as error:
                    unsound.append(str(error))
                except StoreUnreadableError as error:
                    if not project().store.exists():
                        raise  # the store went away, and says nothing about its files
                    unsound.append(str(error))
                checked += 1
                progress.advance(task)
    if as_json:
        print_json({"checked": checked, "unsound": unsound})
    else:
        for message in unsound:
            err.print(message, style="red", soft_wrap=True)
        out.print(f"{checked} files checked, {len(unsound)} unsound")
    raise typer.Exit(NO if unsound else 0)


@app.command()
def sweep() -> None:
    """Remove what dead attempts left behind. Every run does this by itself."""
    out.print(f"{project().store.sweep()} dead attempts removed")
