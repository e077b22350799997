"""A process that is killed at its n-th call of the operating system, for every n.

The calls are patched in the child only. A write can also be cut in half: what a reader would meet
if files were written in place.
"""

from __future__ import annotations

import fcntl
import io
import os
import signal
from typing import TYPE_CHECKING, Any

from backfill_assets.stores.files import durability
from backfill_assets_tests.stores.children import Child

if TYPE_CHECKING:
    from collections.abc import Callable

_CALLS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("open", "close", "write", "link", "mkdir", "unlink", "rmdir")),
    *((os, name) for name in ("rename", "replace", "fsync", "utime", "scandir", "lstat")),
    (fcntl, "flock"),
    (io, "open"),
    (durability, "_call_syncfs"),  # a C function, called through ctypes
)


def killed_at(number: int, act: Callable[[], object]) -> str | None:
    """Run ``act`` in a child that is killed at its call of that number, from 0.

    Returns:
        The name of the call at which it died, or None where it made fewer calls and lived.
    """
    reached, report = os.pipe()

    def doomed() -> None:
        _count_calls(number, report)
        act()

    running = Child(doomed)
    os.close(report)
    with os.fdopen(reached, encoding="utf-8") as file:
        name = file.read()
    if name:
        # The fault that was injected is the one that happened.
        assert running.exit_code() == -signal.SIGKILL
    else:
        assert running.answer() is None
    running.close()
    return name or None


def _count_calls(number: int, report: int) -> None:
    """Patch the calls so that this process dies at one of them."""
    left = [number]
    write_report, pid = os.write, os.getpid()

    def die(name: str) -> None:
        write_report(report, name.encode())
        os.kill(pid, signal.SIGKILL)

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            if left[0] == 0:
                die(name)
            left[0] -= 1
            return call(*arguments, **named)

        return wrapper

    def cut(descriptor: int, content: memoryview) -> int:
        if left[0] == 0:
            write_report(descriptor, content[: len(content) // 2])
            die("half a write")
        left[0] -= 1
        return write_report(descriptor, content)

    for module, name in _CALLS:
        setattr(module, name, counted(name, getattr(module, name)))
    os.write = counted("write", cut)
