"""Where commands print, and what their answers mean to scripts."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

NO = 3  # exit code: the answer is no

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def print_json(value: object) -> None:
    """Print a value for scripts."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
