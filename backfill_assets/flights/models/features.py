"""What the models are told of a flight: facts known before it departs, and numbers made of them.

Facts are what the database says, with text and nulls; features are numbers, in a stated order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from backfill_assets.flights.connection import connected
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

NAMES = ("unit", "carrier", "destination")  # facts that are text, and that the models know by name
_NUMBERS = {
    "departure_minute": pa.int64(),
    "arrival_minute": pa.int64(),
    "distance": pa.int64(),
    "weekday": pa.int64(),
    "departures_in_hour": pa.int64(),
    "temperature": pa.float64(),
    "dew_point": pa.float64(),
    "humidity": pa.float64(),
    "wind_direction": pa.float64(),
    "wind_speed": pa.float64(),
    "wind_gust": pa.float64(),
    "precipitation": pa.float64(),
    "pressure": pa.float64(),
    "visibility": pa.float64(),
}
FEATURES = (*NAMES, *_NUMBERS)  # the order of every row of numbers
_TYPES = {
    "date": pa.date32(),
    **dict.fromkeys(("flight", *NAMES), pa.string()),
    **_NUMBERS,
    "arrival_delay": pa.float64(),
}
_QUERIES = load_statements("backfill_assets.flights.models", "features.sql")

Row = list[float | None]


@dataclass(frozen=True, slots=True)
class Features:
    """Flights as the models see them.

    Attributes:
        flights: The flights of one day at one airport by carrier and number, sorted.
        rows: One row of numbers for each flight, in the order of ``FEATURES``; None is unknown.
    """

    flights: list[str]
    rows: list[Row]


def known_facts(url: str, days: Sequence[date], units: Sequence[str]) -> pa.Table:
    """Return the scheduled flights of the days and airports, sorted by day, airport and flight.

    Raises:
        SourceError: the database cannot be read, or does not hold the flights.
    """
    return _table(_read(url, "known", {"days": list(days), "units": list(units)}))


def facts_and_delays(url: str, first_day: date, last_day: date) -> tuple[pa.Table, str]:
    """Return the scheduled flights from ``first_day`` to ``last_day``, and a digest of them.

    The table has one more column, ``arrival_delay`` in minutes; null where a flight never arrived.

    Raises:
        SourceError: the database cannot be read, or does not hold the flights.
    """
    text = _read(url, "known_and_delay", {"first_day": first_day, "last_day": last_day})
    return _table(text), hashlib.sha256(text).hexdigest()


def vocabularies(facts: pa.Table) -> dict[str, list[str]]:
    """Return the names that occur in each text column, sorted."""
    return {name: sorted(pc.unique(facts.column(name)).to_pylist()) for name in NAMES}


def features(facts: pa.Table, known_names: Mapping[str, Sequence[str]]) -> Features:
    """Return the numbers of flights; a name is its place in its vocabulary, or None."""
    columns = [_places(facts.column(name), known_names[name]) for name in NAMES]
    columns += [facts.column(name).to_pylist() for name in _NUMBERS]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Features(facts.column("flight").to_pylist(), rows)


def _places(names: pa.ChunkedArray, vocabulary: Sequence[str]) -> list[int | None]:
    places = {name: place for place, name in enumerate(vocabulary)}
    return [places.get(name) for name in names.to_pylist()]


def _read(url: str, query: str, values: Mapping[str, object]) -> bytes:
    with connected(url) as connection:
        connection.execute(_QUERIES["session"])
        with connection.cursor().copy(_QUERIES[query], values) as copy:
            return b"".join(copy)


def _table(text: bytes) -> pa.Table:
    options = csv.ConvertOptions(
        column_types=_TYPES,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return csv.read_csv(pa.BufferReader(text), convert_options=options).combine_chunks()
