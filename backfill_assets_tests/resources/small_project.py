"""A small made-up business: a catalogue, a source that counts its questions, and a project.

Two grids, a unit that opens a day late, units whose catalogue order is no order of the alphabet,
five closed days and five open ones. The store, the clock and the definitions are the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.cycles import Bounds
from backfill_assets.core.errors import SourceError, SourceNotReadyError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.partitions import ColumnType
from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.splitting import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from backfill_assets.core.partitions import Query

DAY_1, DAY_2, DAY_3, DAY_4, DAY_5, DAY_6 = (date(2024, 3, day) for day in range(1, 7))

# 01:00 in Paris: 5 March has just closed, with one hour of allowed lateness.
NOW = datetime(2024, 3, 6, 0, 0, tzinfo=UTC)


def a_catalogue(**changes: Any) -> Catalogue:
    """Return the catalogue of a chain of shops, with some of its parts changed."""
    parts: dict[str, Any] = {
        "name": "shops",
        "closing": ClosingPolicy(
            zone=ZoneInfo("Europe/Paris"), allowed_lateness=timedelta(hours=1)
        ),
        "first_day": DAY_1,
        "last_day": date(2024, 3, 10),
        "units": [Unit("Paris"), Unit("Lyon"), Unit("Nice", first_day=DAY_2)],
        "categories": [
            Category("article"),
            Category("hour", ColumnType.INT64, first_day=DAY_3),
        ],
        "value_types": [ValueType("sold", ColumnType.INT64), ValueType("revenue")],
    }
    return Catalogue(**(parts | changes))


SHOPS = a_catalogue()
SOLD = SHOPS.query("article/sold")
REVENUE = SHOPS.query("article/revenue")
SOLD_BY_HOUR = SHOPS.query("hour/sold")
REVENUE_BY_HOUR = SHOPS.query("hour/revenue")

# Two shops on the first day and three on the four after it, for two value types by article; three
# shops on the last three days, for two value types by hour.
EXPECTED = 28 + 18


@dataclass
class Shops:
    """A source in memory: two groups for each day and unit, the same whenever they are asked for.

    Attributes:
        failing: Days that cannot be computed.
        not_ready: Days that the source knows to be incomplete.
        questions: The category and the days of every question that was asked.
        on_read: Called before each answer.
    """

    failing: set[date] = field(default_factory=set)
    not_ready: set[date] = field(default_factory=set)
    questions: list[tuple[str, tuple[date, ...]]] = field(default_factory=list)
    on_read: Callable[[], object] = lambda: None
    factor: int = 1

    def read(
        self, category: str, value_types: Sequence[str], days: Sequence[date], units: Sequence[str]
    ) -> pa.Table:
        self.questions.append((category, tuple(days)))
        self.on_read()
        if unready := self.not_ready & set(days):
            message = f"{min(unready)} is not complete in the till"
            raise SourceNotReadyError(message)
        if broken := self.failing & set(days):
            message = f"the till of {min(broken)} is broken"
            raise SourceError(message)
        keys = [(day, unit, group) for day in days for unit in units for group in (0, 1)]
        values = [self.factor * (100 * day.day + len(unit) + group) for day, unit, group in keys]
        groups = [g if category == "hour" else f"A{g}" for *_, g in keys]
        columns: dict[str, Any] = {
            "date": pa.array([day for day, *_ in keys], pa.date32()),
            "unit": pa.array([unit for _, unit, _ in keys], pa.string()),
            category: pa.array(groups, pa.int64() if category == "hour" else pa.string()),
            "sold": pa.array(values, pa.int64()),
            "revenue": pa.array([v / 2 for v in values], pa.float64()),
        }
        names = ["date", "unit", category, *value_types]
        return pa.table({name: columns[name] for name in names})

    @property
    def days_asked(self) -> set[date]:
        """Every day that was asked for."""
        return {day for _, days in self.questions for day in days}


def a_project(
    root: Path,
    *,
    catalogue: Catalogue = SHOPS,
    source: Shops | None = None,
    now: datetime = NOW,
    bounds: Bounds | None = None,
    runs_in_flight: int = 2,
    commit_protocol: str = "link",
) -> Project:
    """Return a project whose store is at a folder; it is begun where there is no folder yet."""
    store = LocalPartitionStore(root, [catalogue], commit_protocol=commit_protocol)
    if not root.exists():
        store.prepare()
    return Project(
        data_sets=[DataSet(catalogue, source or Shops())],
        store=store,
        clock=FixedClock(now),
        bounds=bounds or Bounds(),
        runs_in_flight=runs_in_flight,
    )


def rectangle(
    *queries: Query, first: date, last: date, units: Iterable[str], catalogue: Catalogue = SHOPS
) -> PartitionSet:
    """Return the partitions of queries × days, both ends inclusive, × units."""
    days = list(catalogue.days(first, last))
    mask = sum(catalogue.unit_bits[unit] for unit in units)
    return PartitionSet.rectangle(catalogue, queries, days, mask)


def committed(project: Project) -> PartitionSet:
    """Return what stands committed by the files alone."""
    return project.store.scan(project.catalogues[0]).committed


def fill(project: Project, *, days: Iterable[date] | None = None) -> None:
    """Commit what is missing, of some days or of all, without Dagster."""
    missing = project.plan(project.catalogues[0]).missing
    wanted = set(missing.days()) if days is None else set(days)
    source = Shops()
    with project.store.attempt("filling") as attempt:
        for category in dict.fromkeys(query.category for query in missing.catalogue.queries):
            queries = [q for q in missing.catalogue.queries if q.category == category]
            value_types = [query.value_type for query in queries]
            chosen = [day for day in missing.only(queries).days() if day in wanted]
            units = missing.catalogue.unit_names
            table = source.read(category, value_types, chosen, units)
            partitions = PartitionSet.of(
                missing.catalogue, (p for p in missing.only(queries) if p.day in wanted)
            )
            for partition, rows in split(table, queries, partitions):
                attempt.stage(partition, rows)
        attempt.publish()
