"""``backfill-assets …``: what a terminal can ask and do.

Exit codes: 0 done; 1 an error, with what to do about it; 2 a wrong command line; 3 the answer is
no: something is missing, or a file is not sound.
"""

from __future__ import annotations

import sys

import typer

from backfill_assets.cli import files, partitions, releases, sagas, servers
from backfill_assets.cli.screen import err
from backfill_assets.core.errors import BackfillAssetsError
from backfill_assets.stores.postgres.errors import PostgresError

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
for commands in (servers, partitions, files, releases):
    app.add_typer(commands.app)
app.add_typer(sagas.app, name="saga")


def main() -> None:
    """Run the command line; an error of ours is a sentence, not a traceback."""
    try:
        app()
    except (BackfillAssetsError, PostgresError) as error:
        err.print(f"{type(error).__name__}: {error}", style="red", soft_wrap=True, highlight=False)
        sys.exit(1)
