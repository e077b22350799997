"""Where the figures of the catalogue ``flights`` come from: one SQL statement per category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.connection import connected
from backfill_assets.stores.sql import load_statements
from backfill_assets.stores.tables import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    import psycopg

_QUERIES = load_statements("backfill_assets.flights", "queries.sql")
_TYPES = {
    "date": pa.date32(),
    "unit": pa.string(),
    **{category.name: arrow_type(category.type) for category in FLIGHTS.categories},
    **{value_type.name: arrow_type(value_type.type) for value_type in FLIGHTS.value_types},
}


@dataclass(frozen=True, slots=True)
class FlightsSource:
    """Flights in PostgreSQL, as ``load_flights`` put them there; they never change.

    Attributes:
        url: Gives the address of the database; asked anew for each read, because a server that
            was restarted may listen elsewhere.
    """

    url: Callable[[], str]

    def read(
        self, category: str, value_types: Sequence[str], days: Sequence[date], units: Sequence[str]
    ) -> pa.Table:
        """Return the figures of all the days and units, from one statement and so one snapshot.

        One row per group with a scheduled flight, sorted by day, unit and group.

        Raises:
            UnknownPartitionError: the catalogue has no such category or value type.
            SourceError: the database cannot be read, or does not hold the flights.
        """
        for value_type in value_types:
            FLIGHTS.query(f"{category}/{value_type}")
        # A connection per read: a few milliseconds, against having to notice that one has died.
        with connected(self.url()) as connection:
            connection.execute(_QUERIES["session"])
            text = _copied(connection, _QUERIES[category], days, units)
        return _table(text, ["date", "unit", category, *value_types])


def _copied(
    connection: psycopg.Connection, query: str, days: Sequence[date], units: Sequence[str]
) -> bytes:
    values = {"days": list(days), "units": list(units)}
    with connection.cursor().copy(query, values) as copy:
        return b"".join(copy)


def _table(text: bytes, columns: list[str]) -> pa.Table:
    table = csv.read_csv(
        pa.BufferReader(text),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=_TYPES,
            include_columns=columns,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return table.combine_chunks()
