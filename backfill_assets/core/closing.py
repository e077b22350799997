"""When a day of data is complete: the closing policy, in the zone of the data.

A day is ``[midnight(day), midnight(day + 1))`` by the zone database. Nothing here adds 24 hours to
an instant, and nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from backfill_assets.core.errors import CatalogueError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

ONE_DAY = timedelta(days=1)  # for calendar dates only, never for instants
_TICK = timedelta(microseconds=1)  # the resolution of datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingPolicy:
    """When a day counts as complete.

    Attributes:
        zone: The time zone whose midnight ends a day.
        allowed_lateness: How long after a day's end its data may still arrive; zero or more.
    """

    zone: ZoneInfo
    allowed_lateness: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if self.allowed_lateness < timedelta(0):
            message = (
                f"allowed_lateness is {self.allowed_lateness}: a day cannot close before it ends; "
                "give zero or more"
            )
            raise CatalogueError(message)

    def ends_at(self, day: date) -> datetime:
        """Return the instant, in UTC, from which on no local time belongs to ``day`` any more."""
        midnight = datetime.combine(day + ONE_DAY, time.min, tzinfo=self.zone)
        readings = [midnight.replace(fold=fold).astimezone(UTC) for fold in (0, 1)]
        # A midnight that exists once has one reading. One that is repeated, or falls into a gap,
        # has two, and the day ends at one of them or between.
        earliest, latest = min(readings), max(readings)
        if self._local_date(latest - _TICK) <= day:
            return latest
        return self._first_instant_after(day, earliest - _TICK, latest)

    def closes_at(self, day: date) -> datetime:
        """Return the first instant, in UTC, at which ``day`` is closed."""
        return self.ends_at(day) + self.allowed_lateness

    def is_closed(self, day: date, now: datetime) -> bool:
        """Return whether the data of ``day`` is accepted as complete at ``now``."""
        return now >= self.closes_at(day)

    def is_civil_day(self, day: date) -> bool:
        """Return whether ``day`` ever was: Pacific/Apia had no 2011-12-30."""
        return self.ends_at(day) > self.ends_at(day - ONE_DAY)

    def latest_closed_day(self, now: datetime) -> date:
        """Return the newest civil day that is closed at ``now``, which must be aware."""
        if now.tzinfo is None:
            message = f"now is {now.isoformat()} without a time zone; give an aware instant"
            raise CatalogueError(message)
        day = self._local_date(now.astimezone(UTC) - self.allowed_lateness)
        while not (self.is_closed(day, now) and self.is_civil_day(day)):
            day -= ONE_DAY
        return day

    def _local_date(self, instant: datetime) -> date:
        return instant.astimezone(self.zone).date()

    def _first_instant_after(self, day: date, low: datetime, high: datetime) -> datetime:
        """Bisect for the first instant in ``(low, high]`` whose local date is after ``day``."""
        while high - low > _TICK:
            middle = low + (high - low) / 2
            if self._local_date(middle) > day:
                high = middle
            else:
                low = middle
        return high
