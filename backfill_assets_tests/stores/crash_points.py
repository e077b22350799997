"""A process that is killed, or stopped, at its n-th call of the operating system, for every n.

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


def stopping_at(number: int, act: Callable[[], object]) -> Callable[[], object]:
    """Return ``act`` so that its process stops before its call of that number, from 0."""

    def stopping() -> object:
        _count_calls(number, os.open(os.devnull, os.O_WRONLY), signal.SIGSTOP)
        return act()

    return stopping


def stop_at_call(number: int, name: str, what: str) -> None:
    """Patch a call of the operating system so that this process stops at one of them.

    Args:
        number: From 1; of the calls that name or write something outside of the attempts.
        name: The call; with `` and then``, it stops after the call.
        what: The end of the path that the call gives a name to, or the beginning of what it writes.
    """
    name, is_after, _ = name.partition(" and then")
    call, calls = getattr(os, name), [0]

    def counts(arguments: tuple[Any, ...]) -> bool:
        if name == "write":
            return bytes(arguments[1]).startswith(what.encode())
        is_new = name != "open" or bool(arguments[1] & os.O_CREAT)
        target = str(arguments[0 if name == "open" else 1])
        return is_new and ".attempts" not in target and target.endswith(what)

    def wrapper(*arguments: Any, **named: Any) -> Any:
        is_reached = counts(arguments)
        calls[0] += is_reached
        is_reached &= calls[0] == number
        if is_reached and not is_after:
            os.kill(os.getpid(), signal.SIGSTOP)
        result = call(*arguments, **named)
        if is_reached and is_after:
            os.kill(os.getpid(), signal.SIGSTOP)
        return result

    setattr(os, name, wrapper)


def _count_calls(number: int, report: int, end: int = signal.SIGKILL) -> None:
    """Patch the calls so that this process dies, or stops, at one of them."""
    left = [number]
    write_report, pid = os.write, os.getpid()

    def die(name: str) -> None:
        write_report(report, name.encode())
        left[0] -= 1  # where it only stops, it goes on afterwards
        os.kill(pid, end)

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            if left[0] == 0:
                die(name)
            else:
                left[0] -= 1
            return call(*arguments, **named)

        return wrapper

    def cut(descriptor: int, content: memoryview) -> int:
        if left[0] == 0:
            half = write_report(descriptor, content[: len(content) // 2])
            die("half a write")
            return half
        left[0] -= 1
        return write_report(descriptor, content)

    for module, name in _CALLS:
        setattr(module, name, counted(name, getattr(module, name)))
    os.write = counted("write", cut)
