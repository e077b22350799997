"""What commands have in common: where they print, what answers mean to scripts, and who asks."""

from __future__ import annotations

import getpass
import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from backfill_assets.core.errors import SettingsError

NO = 3  # exit code: the answer is no

# No markup: reasons, paths and errors are other people's words, and `[/x]` in one is no style.
out = Console(markup=False, emoji=False)
err = Console(stderr=True, markup=False, emoji=False)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def print_json(value: object) -> None:
    """Print a value for scripts."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def person(who: str | None) -> str:
    """Return who decides: as said, or by login.

    Raises:
        SettingsError: nobody said, and this machine does not know: a user without a name.
    """
    try:
        return who or getpass.getuser()
    except (KeyError, OSError):
        message = "--who: this machine does not know your login; say who decides"
        raise SettingsError(message) from None
