"""What the folders of a query held at an earlier look, for as long as nothing in them has changed.

A folder's times move whenever a name in it comes, goes or is replaced, and nobody can set the time
of change back. So a process that looks again and again asks each folder for its times, and reads
the folders of a query only when one of them is another one. Nothing of it is kept on disk.

Clocks of file systems may tick as seldom as every two seconds, so that two changes can have one
time. Hence what is remembered was read when its times had already stood for longer than that, and
by this process's own clock. Everything is read in full once in a while all the same.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue

SETTLE_SECONDS = 3.0  # longer than the tick of any file system's clock
FULL_SECONDS = 600.0  # a full look at least so often, whatever the times say

Masks = tuple[dict["date", int], ...]  # by kind: committed, held, to be restated
_Times = list[tuple[int, int, int, int]]
_IDENTITY_AND_TIMES = attrgetter("st_dev", "st_ino", "st_mtime_ns", "st_ctime_ns")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a full look at a query found.

    Attributes:
        folders: All that was read, the folder of the days first.
        has_strangers: Whether something stands there that each look is to name.
    """

    masks: Masks
    folders: Sequence[str]
    has_strangers: bool


@dataclass(frozen=True, slots=True)
class _Look:
    masks: Masks
    folders: list[bytes]
    times: _Times | None  # of the folders, taken before they were read
    times_met_at: float
    read_at: float
    is_settled: bool


class Looks:
    """The last look at each query of a store, in the memory of one process.

    Args:
        clock: Seconds that pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._last: dict[tuple[Catalogue, str], _Look] = {}

    def masks(self, catalogue: Catalogue, days_folder: str, read: Callable[[], Reading]) -> Masks:
        """Return what a query's folders hold, read anew unless nothing has changed since.

        Args:
            catalogue: Whose order of units gives the masks their meaning.
            days_folder: The folder of the query's days.
            read: Looks in full.
        """
        key = (catalogue, days_folder)
        last = self._last.get(key)
        now = self.clock()
        # Most processes look once: the first look takes no times.
        times = None if last is None else _times(last.folders)
        asked_at = self.clock()
        is_same = last is not None and times is not None and times == last.times
        if last is not None and is_same and last.is_settled and now - last.read_at < FULL_SECONDS:
            return last.masks
        reading = read()
        if reading.has_strangers:
            self._last.pop(key, None)
        else:
            self._last[key] = _look(reading, last if is_same else None, times, now, asked_at)
        return reading.masks


def _look(
    reading: Reading, before: _Look | None, times: _Times | None, now: float, asked_at: float
) -> _Look:
    """Return what is remembered of a full look.

    Args:
        before: The look before, where it met the same times.
        now: When it began.
        asked_at: When all times had been asked for.
    """
    met_at = asked_at if before is None else before.times_met_at
    folders = [os.fsencode(folder) for folder in reading.folders]
    # What changes while a clock stands still has stopped changing when it has moved on.
    is_settled = now - met_at > SETTLE_SECONDS
    return _Look(reading.masks, folders, times, met_at, now, is_settled)


def _times(folders: Sequence[bytes]) -> _Times | None:
    """Return which folders stand there and when they changed, or None where one is gone."""
    try:
        return list(map(_IDENTITY_AND_TIMES, map(os.stat, folders)))
    except OSError:
        return None  # reading says what it means
