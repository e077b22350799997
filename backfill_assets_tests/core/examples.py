"""One small catalogue that the examples share: three airports, three queries, New York."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backfill_assets.core.plan import Plan

NEW_YORK = ClosingPolicy(zone=ZoneInfo("America/New_York"), allowed_lateness=timedelta(hours=8))

# 09:00 in New York: 4 August closed an hour ago; 5 August closes on the 6th at 08:00.
NOW = datetime(2013, 8, 5, 13, tzinfo=UTC)


def a_catalogue(**changes: Any) -> Catalogue:
    """Return the catalogue from 1 August 2013, with some of its parts changed."""
    parts: dict[str, Any] = {
        "name": "flights",
        "closing": NEW_YORK,
        "first_day": date(2013, 8, 1),
        "units": [Unit("EWR"), Unit("JFK"), Unit("LGA")],
        "categories": [Category("carrier"), Category("hour")],
        "value_types": [ValueType("departures")],
    }
    return Catalogue(**(parts | changes))


def a_set(catalogue: Catalogue, names: Iterable[str]) -> PartitionSet:
    """Return the partitions written ``category/value_type/YYYY-MM-DD/unit``."""
    return PartitionSet.of(catalogue, [catalogue.parse(name) for name in names])


def a_plan(
    catalogue: Catalogue,
    present: Iterable[str] = (),
    held: Iterable[str] = (),
    in_flight: Iterable[str] = (),
    backing_off: Iterable[str] = (),
    now: datetime = NOW,
) -> Plan:
    """Return the plan of what is named."""
    return make_plan(
        catalogue,
        present=a_set(catalogue, present),
        held=a_set(catalogue, held),
        in_flight=a_set(catalogue, in_flight),
        backing_off=a_set(catalogue, backing_off),
        now=now,
    )


def names(partitions: Iterable[object]) -> list[str]:
    """Return partitions as text, without the catalogue's name, in their order."""
    return [str(partition).removeprefix("flights/") for partition in partitions]
