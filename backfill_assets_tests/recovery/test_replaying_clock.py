"""A clock that runs through January: days close before one's eyes, and publish themselves."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets_tests.recovery.waiting import wait_for
from backfill_assets_tests.recovery.watcher import partition_at, stamps

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets_tests.recovery.running import Product

START = "2013-01-10T06:00:00-05:00"
SPEED = 7_200  # two hours every second: a day closes every 12 s
LATER_DAY = date(2013, 1, 13)  # closes on the 14th at 08:00: 49 s after the start
PARTITIONS_OF_A_DAY = 36  # three airports, three categories, four value types
SECONDS = 360


def written_at(product: Product) -> dict[date, list[float]]:
    """Return when the files of each day were written, in real seconds, sorted."""
    times: dict[date, list[float]] = defaultdict(list)
    for path, (_, time_ns, _) in stamps(product.store.root):
        times[partition_at(path).day].append(time_ns / 1e9)
    return {day: sorted(found) for day, found in times.items()}


def test_days_close_and_are_published_by_themselves_newest_first(
    new_product: Callable[..., Product],
) -> None:
    product = new_product(clock=f"{START}@{SPEED}", tick_seconds="2")
    product.up()
    wait_for(
        "a day that closed meanwhile",
        lambda: len(written_at(product).get(LATER_DAY, ())) == PARTITIONS_OF_A_DAY,
        seconds=SECONDS,
        every=0.5,
    )
    assert product.stop() == 0

    began_at = datetime.fromisoformat(
        json.loads((product.home / "clock.json").read_text())["began_at"]
    )
    start = datetime.fromisoformat(START)
    times = written_at(product)
    for day, (first, *_) in times.items():
        closed_at = began_at + (FLIGHTS.closing.closes_at(day) - start) / SPEED
        assert datetime.fromtimestamp(first, UTC) >= closed_at, day
    # The day that was the newest when all began was there before any older one.
    newest = min(times, key=lambda day: times[day][0])
    assert all(times[newest][-1] <= times[day][0] for day in times if day < newest)
    assert newest >= date(2013, 1, 8)
    # Days that closed later came later, each when it had closed.
    later = sorted(day for day in times if day >= newest)
    assert [times[day][0] for day in later] == sorted(times[day][0] for day in later)
