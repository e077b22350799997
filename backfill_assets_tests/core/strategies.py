"""What the properties are searched over: texts, catalogues, and what stands in a store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.cycles import Bounds
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import make_plan

if TYPE_CHECKING:
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.plan import Plan

# Each zone with a day on which something odd happens close to midnight.
ODD_DAYS = (
    ("UTC", date(2013, 8, 3)),
    ("Africa/Cairo", date(2023, 4, 28)),  # 00:00 → 01:00
    ("Africa/Cairo", date(2023, 10, 26)),  # 24:00 → 23:00
    ("America/Havana", date(2013, 3, 10)),  # 00:00 → 01:00
    ("America/Havana", date(2013, 11, 3)),  # 01:00 → 00:00
    ("America/New_York", date(2013, 3, 10)),
    ("America/New_York", date(2013, 11, 3)),
    ("America/Sao_Paulo", date(2018, 2, 17)),  # 24:00 → 23:00
    ("America/Sao_Paulo", date(2018, 11, 4)),  # 00:00 → 01:00
    ("America/St_Johns", date(1987, 10, 25)),  # 00:01 → 23:01 the day before
    ("America/St_Johns", date(1988, 4, 3)),  # 00:01 → 02:01
    ("America/St_Johns", date(1988, 10, 30)),  # 00:01 → 22:01 the day before
    ("America/St_Johns", date(2006, 4, 2)),  # 00:01 → 01:01
    ("America/St_Johns", date(2011, 3, 13)),
    ("America/Toronto", date(1919, 3, 31)),  # 23:30 the day before → 00:30
    ("Asia/Beirut", date(2022, 3, 27)),  # 00:00 → 01:00
    ("Asia/Beirut", date(2022, 10, 29)),  # 24:00 → 23:00
    ("Atlantic/Azores", date(2013, 10, 27)),  # 01:00 → 00:00
    ("Australia/Lord_Howe", date(2024, 4, 7)),  # 02:00 → 01:30
    ("Australia/Lord_Howe", date(2024, 10, 6)),
    ("Europe/Madrid", date(2024, 3, 31)),
    ("Europe/Madrid", date(2024, 10, 27)),
    ("Pacific/Apia", date(2011, 12, 30)),  # never was
    ("Pacific/Kiritimati", date(1994, 12, 31)),  # never was
    ("Pacific/Kwajalein", date(1969, 9, 30)),  # 13:00 → 14:00 the day before
    ("Pacific/Kwajalein", date(1993, 8, 21)),  # never was
)

SPAN = 8  # days that a drawn catalogue can speak of; enough for bounds and barriers to meet

some_text = st.text(min_size=1, max_size=20)
# Letters that meet after case folding, and characters that mean something in a path.
awkward_text = st.text("aAbBéÉßkK\u017f\u212a%/\\.~$: 19-_", min_size=1, max_size=6)
any_text = st.one_of(some_text, awkward_text)

bounds = st.builds(
    Bounds,
    max_days=st.none() | st.integers(1, SPAN),
    max_partitions=st.none() | st.integers(1, 40),
)


def lateness() -> st.SearchStrategy[timedelta]:
    """Return durations from none to three days, to the minute."""
    return st.builds(_duration, st.integers(0, 2), st.integers(0, 23), st.integers(0, 59))


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    """Draw a catalogue of up to 5 units, 3 categories and 2 value types, around an odd day.

    What begins does so in the first half of its days, and what ends in the second, so that most
    catalogues expect something.
    """
    zone, odd_day = draw(st.sampled_from(ODD_DAYS))
    first_day = odd_day - timedelta(days=draw(st.integers(0, 3)))
    early, late = (
        st.one_of(st.none(), st.none(), numbers.map(lambda days: first_day + timedelta(days=days)))
        for numbers in (st.integers(0, SPAN // 2), st.integers(SPAN // 2, SPAN))
    )
    return Catalogue(
        name="data",
        closing=ClosingPolicy(zone=ZoneInfo(zone), allowed_lateness=draw(lateness())),
        first_day=first_day,
        last_day=draw(late),
        units=[
            Unit(name, first_day=draw(early), last_day=draw(late))
            for name in "VWXYZ"[: draw(st.integers(1, 5))]
        ],
        categories=[
            Category(name, first_day=draw(early))
            for name in ("c1", "c2", "c3")[: draw(st.integers(1, 3))]
        ],
        value_types=[
            ValueType(name, first_day=draw(early))
            for name in ("v1", "v2")[: draw(st.integers(1, 2))]
        ],
    )


def all_partitions(catalogue: Catalogue) -> list[Partition]:
    """Return every partition near the catalogue's days in plan order, expected or not."""
    days = [catalogue.first_day + timedelta(days=days) for days in range(SPAN + 3, -3, -1)]
    return [
        catalogue.partition(query.name, day, unit)
        for day in days
        for query in catalogue.queries
        for unit in catalogue.unit_names
    ]


@st.composite
def subsets(draw: st.DrawFn, catalogue: Catalogue) -> PartitionSet:
    """Draw a set of the catalogue's partitions: nothing, a few, half, most, or everything."""
    partitions = all_partitions(catalogue)
    size = (len(partitions) + 7) // 8
    # Bytes, not one large integer: hypothesis draws integers close to zero, and the set would be
    # empty nearly always.
    half = st.binary(min_size=size, max_size=size).map(int.from_bytes)
    everything = (1 << len(partitions)) - 1
    share = draw(st.sampled_from(("none", "few", "half", "most", "all")))
    chosen = {"none": 0, "all": everything}.get(share)
    if chosen is None:
        chosen = draw(half)
    if share == "few":
        chosen &= draw(half) & draw(half)
    if share == "most":
        chosen |= draw(half) | draw(half)
    return PartitionSet.of(
        catalogue, (p for place, p in enumerate(partitions) if chosen >> place & 1)
    )


def instants(catalogue: Catalogue) -> st.SearchStrategy[datetime]:
    """Return instants, to the minute, at which all, some or none of the days are closed."""
    first = datetime.combine(catalogue.first_day, datetime.min.time(), tzinfo=UTC)
    last = first + timedelta(days=SPAN + 4)
    # Counted back from the end: hypothesis favours zero, and a plan without a closed day is dull.
    before = st.builds(
        _duration, st.integers(0, SPAN + 4), st.integers(0, 23), st.sampled_from((0, 1, 30, 59))
    )
    return before.map(lambda duration: last - duration)


@dataclass(frozen=True)
class Situation:
    """A catalogue, and everything that a plan is made from."""

    catalogue: Catalogue
    present: PartitionSet
    held: PartitionSet
    in_flight: PartitionSet
    backing_off: PartitionSet
    now: datetime

    def plan(self) -> Plan:
        return make_plan(
            self.catalogue,
            present=self.present,
            held=self.held,
            in_flight=self.in_flight,
            backing_off=self.backing_off,
            now=self.now,
        )


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Draw a catalogue, an instant, and what is present, held, in flight and backing off."""
    catalogue = draw(catalogues())
    # Nothing half of the time: holds, runs in flight and failures are the exception.
    nothing = st.just(PartitionSet.empty(catalogue))
    return Situation(
        catalogue=catalogue,
        present=draw(subsets(catalogue)),
        held=draw(nothing | subsets(catalogue)),
        in_flight=draw(nothing | subsets(catalogue)),
        backing_off=draw(nothing | subsets(catalogue)),
        now=draw(instants(catalogue)),
    )


def _duration(days: int, hours: int, minutes: int) -> timedelta:
    return timedelta(days=days, hours=hours, minutes=minutes)
