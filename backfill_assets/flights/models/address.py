"""Where the model server listens: a file that it writes, and that its clients read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.core.errors import ModelError
from backfill_assets.stores.http_serving import served_at

if TYPE_CHECKING:
    from pathlib import Path


def read_address(address: Path) -> str:
    """Return where the server listens, as it said at its last start; it may have ended since.

    Raises:
        ModelError: it was never started here.
    """
    url = served_at(address)
    if url is None:
        message = (
            f"{address} does not say where the model server listens: `backfill-assets up` starts "
            "it when models are trained, and so does `backfill-assets serve-models`"
        )
        raise ModelError(message)
    return url
