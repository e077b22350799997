"""A day closes once, at the right instant, in zones with the oddest midnights there are."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.errors import CatalogueError
from backfill_assets_tests.core.strategies import ODD_DAYS, lateness

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def policy(zone: str, late: timedelta = timedelta(0)) -> ClosingPolicy:
    return ClosingPolicy(zone=ZoneInfo(zone), allowed_lateness=late)


def local_dates(zone: str, start: datetime, minutes: int) -> list[date]:
    """Return the date on a clock in ``zone`` at each of the next minutes."""
    clock = ZoneInfo(zone)
    return [(start + n * MINUTE).astimezone(clock).date() for n in range(minutes)]


class WalkedDays:
    """The independent model: walk through every minute, and look at the date on the clock."""

    def __init__(self, zone: str, around: date) -> None:
        self._start = datetime.combine(around, datetime.min.time(), tzinfo=UTC) - 4 * DAY
        self._dates = local_dates(zone, self._start, 8 * 24 * 60)

    def existed(self, day: date) -> bool:
        return day in self._dates

    def end(self, day: date) -> datetime:
        """Return the minute after the last one with a date of ``day`` or before."""
        last = max(n for n, seen in enumerate(self._dates) if seen <= day)
        return self._start + (last + 1) * MINUTE


@st.composite
def odd_instants(draw: st.DrawFn) -> tuple[str, datetime]:
    """Draw a zone and an instant within three days of an odd midnight."""
    zone, day = draw(st.sampled_from(ODD_DAYS))
    noon = datetime.combine(day, datetime.min.time(), tzinfo=UTC) + DAY / 2
    return zone, noon + draw(st.timedeltas(-3 * DAY, 3 * DAY))


@st.composite
def plain_instants(draw: st.DrawFn) -> tuple[str, datetime]:
    """Draw any instant of a century and a half in one of the odd zones."""
    zone = draw(st.sampled_from(sorted({zone for zone, _ in ODD_DAYS})))
    return zone, draw(
        st.datetimes(datetime(1905, 1, 1), datetime(2055, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants naive ends
    )


def test_new_york_closes_eight_hours_after_the_end_of_9_march_2013_at_09_local_time() -> None:
    closing = policy("America/New_York", timedelta(hours=8))
    assert closing.closes_at(date(2013, 3, 9)) == utc(2013, 3, 10, 13)
    local = closing.closes_at(date(2013, 3, 9)).astimezone(closing.zone)
    assert local.isoformat() == "2013-03-10T09:00:00-04:00"


@pytest.mark.parametrize(
    ("hour", "minute", "latest"),
    [
        (0, 0, date(2013, 8, 2)),
        (0, 40, date(2013, 8, 2)),
        (0, 59, date(2013, 8, 2)),
        (1, 0, date(2013, 8, 3)),
        (23, 59, date(2013, 8, 3)),
    ],
)
def test_with_one_hour_the_third_closes_on_the_fourth_at_one(
    hour: int, minute: int, latest: date
) -> None:
    closing = policy("America/New_York", timedelta(hours=1))
    now = datetime(2013, 8, 4, hour, minute, tzinfo=closing.zone)
    assert closing.latest_closed_day(now) == latest


@pytest.mark.parametrize(
    ("zone", "day", "end"),
    [
        ("UTC", date(2013, 8, 3), utc(2013, 8, 4)),
        ("Europe/Madrid", date(2024, 3, 31), utc(2024, 3, 31, 22)),
        ("America/Sao_Paulo", date(2018, 11, 3), utc(2018, 11, 4, 3)),  # 00:00 is in a gap
        ("America/Sao_Paulo", date(2018, 2, 17), utc(2018, 2, 18, 3)),  # 23:00 comes twice
        ("Asia/Beirut", date(2022, 10, 29), utc(2022, 10, 29, 22)),  # 23:00 comes twice
        ("America/Havana", date(2013, 11, 2), utc(2013, 11, 3, 4)),  # 00:00 comes twice
        ("America/St_Johns", date(2006, 10, 28), utc(2006, 10, 29, 3, 30)),  # 00:00 comes twice
        ("America/St_Johns", date(1988, 10, 29), utc(1988, 10, 30, 3, 30)),
        ("America/Toronto", date(1919, 3, 30), utc(1919, 3, 31, 4, 30)),  # 23:30 → 00:30
        ("Pacific/Apia", date(2011, 12, 29), utc(2011, 12, 30, 10)),
        ("Pacific/Apia", date(2011, 12, 31), utc(2011, 12, 31, 10)),
    ],
)
def test_a_day_ends_when_no_local_time_belongs_to_it_any_more(
    zone: str, day: date, end: datetime
) -> None:
    assert policy(zone).ends_at(day) == end


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Madrid", date(2024, 3, 31), 23),
        ("Europe/Madrid", date(2024, 10, 27), 25),
        ("Australia/Lord_Howe", date(2024, 4, 7), 24.5),
        ("Australia/Lord_Howe", date(2024, 10, 6), 23.5),
        ("America/St_Johns", date(1988, 4, 3), 22),
        ("America/St_Johns", date(1988, 10, 29), 26),
        ("Pacific/Kwajalein", date(1969, 9, 29), 24),
        ("Pacific/Kwajalein", date(1969, 9, 30), 47),
        ("Pacific/Apia", date(2011, 12, 30), 0),
    ],
)
def test_a_day_is_as_long_as_it_was(zone: str, day: date, hours: float) -> None:
    closing = policy(zone)
    assert closing.ends_at(day) - closing.ends_at(day - DAY) == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("zone", "skipped"),
    [
        ("Pacific/Apia", date(2011, 12, 30)),
        ("Pacific/Kwajalein", date(1993, 8, 21)),
        ("Pacific/Kiritimati", date(1994, 12, 31)),
    ],
)
def test_a_skipped_day_never_was_and_its_neighbours_were(zone: str, skipped: date) -> None:
    days = [skipped + n * DAY for n in (-1, 0, 1)]
    assert [policy(zone).is_civil_day(day) for day in days] == [True, False, True]


@pytest.mark.parametrize(("zone", "odd_day"), ODD_DAYS)
def test_days_end_where_a_walk_through_the_minutes_says(zone: str, odd_day: date) -> None:
    walked, closing = WalkedDays(zone, odd_day), policy(zone)
    days = [odd_day + n * DAY for n in (-2, -1, 0, 1, 2)]
    assert [closing.ends_at(day) for day in days] == [walked.end(day) for day in days]
    assert [closing.is_civil_day(day) for day in days] == [walked.existed(day) for day in days]


@given(st.one_of(odd_instants(), plain_instants()))
@example(("America/St_Johns", utc(2006, 10, 29, 2, 30)))  # 00:00 on the 29th, for one minute
@example(("Pacific/Apia", utc(2011, 12, 30, 10)))
def test_every_instant_belongs_to_exactly_one_day(zoned: tuple[str, datetime]) -> None:
    zone, instant = zoned
    closing = policy(zone)
    today = instant.astimezone(closing.zone).date()
    days = [today + n * DAY for n in range(-3, 4)]
    owners = [day for day in days if closing.ends_at(day - DAY) <= instant < closing.ends_at(day)]
    assert len(owners) == 1
    assert closing.is_civil_day(owners[0])


@given(odd_instants())
@example(("America/St_Johns", utc(2006, 10, 29, 2, 30)))
def test_an_instant_belongs_to_the_earliest_date_that_a_clock_still_shows(
    zoned: tuple[str, datetime],
) -> None:
    zone, instant = zoned
    instant = instant.replace(second=0, microsecond=0)
    still_shown = min(local_dates(zone, instant, 50 * 60))  # no day was longer than 48 hours
    assert policy(zone).ends_at(still_shown - DAY) <= instant < policy(zone).ends_at(still_shown)


@given(st.one_of(odd_instants(), plain_instants()), lateness())
def test_the_latest_closed_day_is_closed_and_no_later_day_is(
    zoned: tuple[str, datetime], late: timedelta
) -> None:
    zone, now = zoned
    closing = policy(zone, late)
    latest = closing.latest_closed_day(now)
    assert closing.is_civil_day(latest)
    assert closing.closes_at(latest) <= now
    later = [latest + n * DAY for n in range(1, 9)]
    assert not [day for day in later if closing.is_civil_day(day) and closing.closes_at(day) <= now]


@given(st.one_of(odd_instants(), plain_instants()), lateness())
def test_a_day_becomes_the_latest_closed_one_at_the_very_instant_at_which_it_closes(
    zoned: tuple[str, datetime], late: timedelta
) -> None:
    zone, instant = zoned
    closing = policy(zone, late)
    day = closing.latest_closed_day(instant)
    at = closing.closes_at(day)
    assert closing.latest_closed_day(at) == day
    assert closing.is_closed(day, at)
    assert closing.latest_closed_day(at - TICK) < day
    assert not closing.is_closed(day, at - TICK)


@given(odd_instants(), st.timedeltas(timedelta(0), 4 * DAY), lateness())
def test_the_latest_closed_day_never_goes_back(
    zoned: tuple[str, datetime], later: timedelta, late: timedelta
) -> None:
    zone, now = zoned
    closing = policy(zone, late)
    assert closing.latest_closed_day(now) <= closing.latest_closed_day(now + later)


@given(odd_instants(), lateness())
def test_the_zone_in_which_now_is_written_does_not_matter(
    zoned: tuple[str, datetime], late: timedelta
) -> None:
    zone, now = zoned
    closing = policy(zone, late)
    elsewhere = now.astimezone(ZoneInfo("Asia/Kathmandu"))
    assert closing.latest_closed_day(elsewhere) == closing.latest_closed_day(now)


def test_a_naive_now_is_refused_and_named() -> None:
    with pytest.raises(CatalogueError, match="2013-08-04T01:00:00 without a time zone"):
        policy("UTC").latest_closed_day(datetime(2013, 8, 4, 1))  # noqa: DTZ001 - the point


def test_a_negative_lateness_is_refused() -> None:
    with pytest.raises(CatalogueError, match=r"allowed_lateness is -1 day, 23:00:00"):
        policy("UTC", timedelta(hours=-1))
