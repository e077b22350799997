"""Text as one path segment, exactly reversible.

Everything outside ``[A-Za-z0-9_-]`` is percent-encoded as UTF-8, dots included, so that no text
can leave its directory or look like a file of another kind.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = frozenset((string.ascii_letters + string.digits + "_-").encode())

# Windows, and shares that follow it, keep these for devices, in any case and with any suffix.
DEVICE_NAMES = frozenset(
    {"CON", "PRN", "AUX", "NUL"} | {f"{port}{n}" for port in ("COM", "LPT") for n in range(10)}
)


def segment(text: str) -> str:
    """Return ``text`` as one path segment; distinct texts give distinct segments."""
    if text.upper() in DEVICE_NAMES:
        return _in_full(text)
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in text.encode())


def text_of(path_segment: str) -> str:
    """Return the text whose segment this is.

    Raises:
        ValueError: the segment does not decode to text.
    """
    return unquote_to_bytes(path_segment).decode("utf-8", errors="strict")


def segments(texts: Iterable[str]) -> dict[str, str]:
    """Return the segment of each text, also distinct on disks that fold case.

    The first of several texts that differ in case only keeps its plain form; every later one is
    encoded in full, so adding ``north`` never moves the files of ``North``.
    """
    result: dict[str, str] = {}
    taken: set[str] = set()
    for text in texts:
        plain = segment(text)
        chosen = plain if plain.lower() not in taken else _in_full(text)
        taken.add(chosen.lower())
        result[text] = chosen
    return result


def _in_full(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())
