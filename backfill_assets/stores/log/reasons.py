"""Why an attempt failed, as text that PostgreSQL stores, whatever was raised."""

from __future__ import annotations

import traceback

MAX_MESSAGE_CHARACTERS = 4_000  # the beginning of a message tells most
MAX_TRACE_CHARACTERS = 20_000  # the end of a trace tells most


def message_of(error: BaseException) -> str:
    """Return what an error says; where it cannot, that it cannot."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 - the error that is to be kept says nothing itself
        text = f"its text cannot be made: {type(broken).__name__}"
    return storable(text)[:MAX_MESSAGE_CHARACTERS]


def trace_of(error: BaseException) -> str:
    """Return the trace of an error, with its causes."""
    return storable("".join(traceback.format_exception(error)))[-MAX_TRACE_CHARACTERS:]


def storable(text: str) -> str:
    """Return text without what PostgreSQL refuses: zero characters, and halves of characters."""
    return text.replace("\0", "�").encode(errors="backslashreplace").decode()
