"""How often a sensor looks: one whose looks are long rests in between."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG_LOOK_SECONDS = 0.5  # a shorter one costs little, however often it comes
RESTS = 20  # times what a long look took: then looking takes a twentieth of a core at most
LONGEST_REST_SECONDS = 60.0


@dataclass(slots=True)
class Pace:
    """The looks of one sensor, remembered in the process that evaluates it and nowhere else.

    Attributes:
        clock: Seconds that pass.
        used: Seconds of a processor that this thread has used.
    """

    clock: Callable[[], float] = time.monotonic
    used: Callable[[], float] = time.thread_time
    _rests_until: float = field(default=0.0, init=False)

    @property
    def rest_left(self) -> float:
        """Seconds until it should look again; 0 or less means now."""
        return self._rests_until - self.clock()

    @contextmanager
    def look(self) -> Iterator[None]:
        """Look; a rest follows where that takes long, and none where it fails."""
        began = self.used()
        yield
        took = self.used() - began
        rest = min(RESTS * took, LONGEST_REST_SECONDS) if took > LONG_LOOK_SECONDS else 0.0
        self._rests_until = self.clock() + rest

    def go_on(self) -> None:
        """Look again without a rest: there is something to do, or to wait for."""
        self._rests_until = 0.0
