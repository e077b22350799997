"""Results and payloads as text: JSON in one form, its digest, and what cannot be stored."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

from backfill_assets.core.errors import ResultRefusedError

if TYPE_CHECKING:
    from backfill_assets.core.operations import Json

_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # and not the six characters themselves

MAX_RESULT_BYTES = 1_000_000  # a row of the log; what is larger belongs into a file, by its digest


def canonical(value: Json) -> str:
    """Return JSON with sorted names and no blanks: equal values give equal text.

    Raises:
        ResultRefusedError: it is no JSON, or PostgreSQL cannot store it.
    """
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
        )
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultRefusedError(f"{type(value).__name__} is no JSON: {error}") from error
    if _ZERO.search(text):
        raise ResultRefusedError("the text holds a zero character, which PostgreSQL cannot store")
    return text


def result_text(result: Json) -> str:
    """Return a result as it is stored.

    Raises:
        ResultRefusedError: it is no JSON, or too large.
    """
    text = canonical(result)
    if (size := len(text.encode())) > MAX_RESULT_BYTES:
        raise ResultRefusedError(
            f"a result of {size} bytes, and {MAX_RESULT_BYTES} is the most that the log "
            "stores; write a file, and return its digest"
        )
    return text


def as_stored(result: Json) -> Json:
    """Return a result as a duplicate will get it: a tuple as a list, names as text."""
    stored: Json = json.loads(canonical(result))
    return stored


def digest(text: str) -> str:
    """Return the digest of canonical text."""
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(payload: Json) -> str:
    """Return what tells one payload from another.

    Raises:
        ResultRefusedError: it is no JSON.
    """
    return digest(canonical(payload))
