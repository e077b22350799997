"""The one module that reads a clock: the real one, a fixed one, or one that replays the past.

A replaying clock shows ``start + speed × elapsed``. Every process sees the same instant, also after
a restart, because the moment at which the replay began is kept in a file.
"""

from __future__ import annotations

import fcntl
import json
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from backfill_assets.core.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

LAST_INSTANT = datetime(MAXYEAR, 1, 1, tzinfo=UTC)  # the days around later ones cannot be told

_EXPECTED = (
    "expected 'real', an instant such as 2013-08-04T00:40:00-04:00, or an instant and a speed such "
    "as 2013-11-01T00:00:00-04:00@3600 (an hour of 2013 every second)"
)


class Clock(Protocol):
    """Tells what time it is for the data."""

    def now(self) -> datetime:
        """Return the instant, aware, in UTC."""


class RealClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the instant, aware, in UTC."""
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class FixedClock:
    """A clock that stands still."""

    instant: datetime

    def now(self) -> datetime:
        """Return the instant, aware, in UTC."""
        return self.instant


@dataclass(frozen=True, slots=True)
class ReplayingClock:
    """A clock that runs through the past, from ``start`` to the end of the calendar.

    Attributes:
        start: The instant that it showed when it began.
        began_at: The real instant at which it began.
        speed: Seconds that pass on it in one real second.
    """

    start: datetime
    began_at: datetime
    speed: float

    def now(self) -> datetime:
        """Return the instant, aware, in UTC."""
        elapsed = (datetime.now(UTC) - self.began_at).total_seconds() * self.speed
        left = (LAST_INSTANT - self.start).total_seconds()
        # Below 0 where the machine's clock was set back since.
        return self.start + timedelta(seconds=min(max(elapsed, 0.0), left))


def make_clock(text: str, state_file: Path) -> Clock:
    """Return the clock that BACKFILL_CLOCK describes.

    Args:
        text: ``real``, ``INSTANT`` or ``INSTANT@SPEED``.
        state_file: Where a replay keeps when it began; remove it to begin anew.

    Raises:
        SettingsError: the text is none of these.
    """
    if text == "real":
        return RealClock()
    instant_text, separator, speed_text = text.partition("@")
    instant = _instant(instant_text)
    if not separator:
        return FixedClock(instant)
    speed = _speed(speed_text)  # before the file is written: a mistake begins no replay
    return ReplayingClock(instant, _began_at(text, state_file), speed)


def parse_instant(text: str) -> datetime:
    """Return the instant that a person wrote, in UTC.

    Raises:
        ValueError: it is none, has no offset from UTC, or the days around it cannot all be told.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is no instant") from None
    if instant.tzinfo is None:
        raise ValueError("has no offset from UTC")
    if not MINYEAR < instant.year < MAXYEAR:
        raise ValueError("is too near to an end of the calendar")
    return instant.astimezone(UTC)


def _instant(text: str) -> datetime:
    try:
        return parse_instant(text)
    except ValueError as error:
        message = f"BACKFILL_CLOCK: {text!r} {error}; {_EXPECTED}"
        raise SettingsError(message) from None


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= timedelta(days=30).total_seconds():
        message = f"BACKFILL_CLOCK: {text!r} is no speed above 0 and up to 2592000; {_EXPECTED}"
        raise SettingsError(message)
    return speed


def _began_at(text: str, state_file: Path) -> datetime:
    """Return when the replay of this text began: now, unless a process began it before."""
    state_file.parent.mkdir(parents=True, exist_ok=True)
    with state_file.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of processes that start together, one begins the replay
        found = _read(state_file)
        if found is not None and found[0] == text:
            return found[1]
        began_at = datetime.now(UTC)
        draft = state_file.with_suffix(".new")
        draft.write_text(json.dumps({"clock": text, "began_at": began_at.isoformat()}))
        draft.replace(state_file)
        return began_at


def _read(state_file: Path) -> tuple[str, datetime] | None:
    """Return which replay the file speaks of, and when that began."""
    try:
        found = json.loads(state_file.read_text())
        return found["clock"], datetime.fromisoformat(found["began_at"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        message = f"{state_file} is damaged ({error}); remove it, and the replay begins anew"
        raise SettingsError(message) from error
