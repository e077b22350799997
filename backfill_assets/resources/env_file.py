"""Reading ``.env`` as Dagster and python-dotenv do, but refusing what they would pass over."""

from __future__ import annotations

import os
import re
from io import StringIO
from typing import TYPE_CHECKING

from dotenv import dotenv_values
from dotenv.parser import Binding, parse_stream

from backfill_assets.core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Set
    from pathlib import Path

_REFERENCE = re.compile(r"\$\{([^}:]*)\}")  # to another variable, without a default


def values_in(path: Path, prefix: str) -> dict[str, str | None]:
    """Return all variables of a file, as Dagster reads them, but with nothing of ours passed over.

    Args:
        prefix: What the names of our own variables begin with.

    Raises:
        SettingsError: the file cannot be read, or one of its lines is no variable; the message
            shows nothing of the line, which may hold a password.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read: {error}"
        raise SettingsError(message) from error
    set_before = set(os.environ)
    for found in parse_stream(StringIO(text)):
        if (wrong := _what_is_wrong(found, prefix, set_before)) is not None:
            message = f"{path}, line {_line(found)}: {wrong}"
            raise SettingsError(message)
        set_before.add(found.key or "")
    return dotenv_values(stream=StringIO(text))


def _what_is_wrong(found: Binding, prefix: str, set_before: Set[str]) -> str | None:
    """Return why a piece of the file would be passed over, or be read as another value."""
    is_ours = (found.key or "").startswith(prefix)
    if found.error or (is_ours and found.value is None):
        return "expected NAME=value; close every quote, and begin a comment with #"
    unset = set(_REFERENCE.findall(found.value or "")) - set_before if is_ours else ()
    if unset:  # Dagster and python-dotenv put nothing in its place, and say nothing
        return (
            f"{found.key} refers to ${{{min(unset)}}}, which is not set; write %24 for $ in a URL"
        )
    return None


def _line(found: Binding) -> int:
    """Return the line in which a piece begins, after the empty ones that belong to it."""
    raw = found.original.string
    blank = raw[: len(raw) - len(raw.lstrip())]
    return found.original.line + blank.count("\n")
