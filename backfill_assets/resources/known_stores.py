"""Which roots were stores before: an empty folder where one was is a lost mount, not a new store.

Kept outside the store, because a store that is not there cannot say so. Losing this file costs the
protection only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import SettingsError, StoreUnreadableError

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.core.store import PartitionStore


def begin_store(store: PartitionStore[Any], root: Path, memory: Path) -> None:
    """Begin a store where none was, or check the one that is there, and remember it.

    Raises:
        StoreUnreadableError: a store was there before and is not now.
        StoreUnsupportedError: other settings made it, or publishing there is not atomic.
    """
    known = _read(memory)
    if str(root) in known and not store.exists():
        message = (
            f"{root} was a store before and is none now: it is not mounted, or was removed. Mount "
            f"it; to begin an empty store there, remove its line from {memory}"
        )
        raise StoreUnreadableError(message)
    store.prepare()
    if str(root) not in known:
        memory.parent.mkdir(parents=True, exist_ok=True)
        draft = memory.with_suffix(".new")
        draft.write_text(json.dumps([*known, str(root)], indent=2))
        draft.replace(memory)


def _read(memory: Path) -> list[str]:
    try:
        return list(json.loads(memory.read_text()))
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        message = f"{memory} is damaged ({error}); remove it"
        raise SettingsError(message) from error
