"""Where the model server listens: a file that it writes, and that its clients read."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from backfill_assets.core.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path


def read_address(address: Path) -> str:
    """Return where the server listens, as it said at its last start; it may have ended since.

    Raises:
        ModelError: it was never started here.
    """
    try:
        return str(json.loads(address.read_text())["url"])
    except (OSError, ValueError, KeyError):
        message = (
            f"{address} does not say where the model server listens: `backfill-assets up` starts "
            "it when models are trained, and so does `backfill-assets serve-models`"
        )
        raise ModelError(message) from None


def write_address(address: Path, url: str) -> None:
    """Say where the server listens; a reader sees the old address or the new one."""
    address.parent.mkdir(parents=True, exist_ok=True)
    draft = address.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"url": url}))
    draft.replace(address)
