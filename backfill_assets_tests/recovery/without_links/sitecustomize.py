"""Has every Python process that is started with this folder on its path refuse links and renames.

Only those of paths in the project's store, as a mounted bucket would; each process leaves its
number in ``HOME/without-links``. Python imports this module by itself when it starts.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HOME = os.environ["BACKFILL_HOME"]
STORE = os.environ.get("BACKFILL_STORE", f"{HOME}/store")
CODES = {"link": errno.EPERM, "rename": errno.ENOTSUP, "replace": errno.ENOTSUP}


def refusing(call: Callable[..., None], code: int) -> Callable[..., None]:
    def refuse(source: Any, target: Any, **named: Any) -> None:
        paths = [os.path.abspath(os.fsdecode(path)) for path in (source, target)]  # noqa: PTH100 - text
        if any(path.startswith(f"{STORE}/") for path in paths):
            raise OSError(code, os.strerror(code), paths[0], None, paths[1])
        call(source, target, **named)

    return refuse


for name, code in CODES.items():
    setattr(os, name, refusing(getattr(os, name), code))
os.makedirs(f"{HOME}/without-links", exist_ok=True)  # noqa: PTH103 - pathlib would slow every start
with open(f"{HOME}/without-links/{os.getpid()}", "w", encoding="utf-8"):  # noqa: PTH123 - as above
    pass
