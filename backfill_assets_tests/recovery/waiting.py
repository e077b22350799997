"""Waiting for what other processes do, without sleeping through it."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

LOOK_SECONDS = 0.05

Found = TypeVar("Found")


def wait_for(
    what: str, look: Callable[[], Found], *, seconds: float, every: float = LOOK_SECONDS
) -> Found:
    """Return what ``look`` found, once it is true; fail after ``seconds``, and say what for."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        pause(every)
    return found


def pause(seconds: float) -> None:
    """Let other processes work: the moment of a kill is part of what is tested."""
    threading.Event().wait(seconds)
