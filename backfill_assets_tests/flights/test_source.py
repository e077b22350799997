"""How the source reads: many days at once, sorted, typed, over restarts, with clear errors."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import TYPE_CHECKING

import psutil
import psycopg
import pyarrow as pa
import pytest

from backfill_assets.core.errors import SourceError, UnknownPartitionError
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.load import load_flights
from backfill_assets.flights.source import FlightsSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
    from backfill_assets.stores.postgres.folder import ServerFolder

CATEGORIES = [category.name for category in FLIGHTS.categories]
VALUE_TYPES = [value_type.name for value_type in FLIGHTS.value_types]
UNITS = ["EWR", "JFK", "LGA"]
DAY = date(2013, 2, 9)
AUGUST = [date(2013, 8, 1) + timedelta(days=n) for n in range(31)]


def read(
    url: str, category: str, days: Sequence[date] = (DAY,), units: Sequence[str] = UNITS
) -> pa.Table:
    return FlightsSource(lambda: url).read(category, VALUE_TYPES, days, units)


@pytest.mark.parametrize("category", CATEGORIES)
def test_many_days_and_airports_at_once_are_the_same_as_one_by_one(flights_url: str, category: str):
    days = AUGUST[::5]
    one_by_one = [read(flights_url, category, [day], [unit]) for day in days for unit in UNITS]
    at_once = read(flights_url, category, list(reversed(days)), list(reversed(UNITS)))
    assert at_once.equals(pa.concat_tables(one_by_one))


@pytest.mark.parametrize("category", CATEGORIES)
def test_rows_are_sorted_by_day_airport_and_group(flights_url: str, category: str):
    table = read(flights_url, category, list(reversed(AUGUST)))
    keys = list(zip(*(table[name].to_pylist() for name in ("date", "unit", category)), strict=True))
    assert keys == sorted(set(keys))
    assert {key[:2] for key in keys} == {(day, unit) for day in AUGUST for unit in UNITS}


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize(
    ("days", "units"),
    [([], UNITS), ([DAY], []), ([date(2012, 12, 31)], UNITS), ([DAY], ["O'Hare'); --", "%s", ""])],
)
def test_where_nothing_was_scheduled_the_table_is_empty_and_has_its_types(
    flights_url: str, category: str, days: list[date], units: list[str]
):
    table = read(flights_url, category, days, units)
    assert table.num_rows == 0
    assert table.schema == read(flights_url, category).schema


def test_the_table_has_the_columns_that_were_asked_for_with_declared_types(flights_url: str):
    table = FlightsSource(lambda: flights_url).read(
        "hour", ["arrival_delay", "departures"], [DAY], ["JFK"]
    )
    assert table.schema == pa.schema(
        [
            ("date", pa.date32()),
            ("unit", pa.string()),
            ("hour", pa.int64()),
            ("arrival_delay", pa.float64()),
            ("departures", pa.int64()),
        ]
    )


def test_an_unknown_category_or_value_type_is_refused_by_name(flights_url: str):
    source = FlightsSource(lambda: flights_url)
    with pytest.raises(UnknownPartitionError, match="query 'session/departures'"):
        source.read("session", ["departures"], [DAY], UNITS)
    with pytest.raises(UnknownPartitionError, match="query 'carrier/profit'"):
        source.read("carrier", ["profit"], [DAY], UNITS)


def test_blank_tail_numbers_and_manufacturers_are_unknown_and_odd_text_is_kept(
    own_flights_url: str,
):
    with psycopg.connect(own_flights_url) as connection:
        connection.execute(
            """
            UPDATE flights.planes SET manufacturer = NULL WHERE manufacturer = 'EMBRAER';
            UPDATE flights.planes SET manufacturer = '  ' WHERE manufacturer = 'BOEING';
            UPDATE flights.planes SET manufacturer = E'Say "A",\\nand B'
             WHERE manufacturer = 'AIRBUS';
            UPDATE flights.flights SET tailnum = ' ' WHERE scheduled_day = '2013-08-04';
            UPDATE flights.flights SET dest = '' WHERE dest = 'ATL';
            UPDATE flights.flights SET dest = 'NULL' WHERE dest = 'BOS';
            """
        )
    saturday, sunday = date(2013, 8, 3), date(2013, 8, 4)
    table = read(own_flights_url, "manufacturer", [saturday], ["JFK"])
    counts = dict(zip(*(table[x].to_pylist() for x in ("manufacturer", "departures")), strict=True))
    assert counts['Say "A",\nand B'] == 78
    assert counts["unknown"] == 45 + 54 + 66
    assert not {"EMBRAER", "BOEING", "AIRBUS", None, ""} & counts.keys()
    on_sunday = read(own_flights_url, "manufacturer", [sunday])
    assert on_sunday["manufacturer"].unique().to_pylist() == ["unknown"]
    destinations = read(own_flights_url, "destination", [saturday], ["LGA"])["destination"]
    assert {"", "NULL"} < set(destinations.to_pylist())
    assert destinations.null_count == 0


def test_the_settings_of_the_database_change_nothing(flights_url: str, own_flights_url: str):
    name = own_flights_url.rpartition("/")[2]
    with psycopg.connect(own_flights_url, autocommit=True) as connection:
        for setting in (
            "extra_float_digits = -5",
            "datestyle = 'German'",
            "client_encoding = 'LATIN1'",
            "enable_hashagg = off",
            "timezone = 'Pacific/Apia'",
        ):
            connection.execute(f"ALTER DATABASE {name} SET {setting}")
    for category in CATEGORIES:
        assert read(own_flights_url, category, AUGUST).equals(read(flights_url, category, AUGUST))


def test_a_read_survives_that_the_server_was_killed_and_restarted(
    own_server: tuple[EmbeddedPostgres, ServerFolder],
):
    server, folder = own_server
    load_flights(server.url("postgres"))
    source = FlightsSource(lambda: server.url("postgres"))
    before = source.read("carrier", VALUE_TYPES, AUGUST, UNITS)
    first = psutil.Process(int(folder.postmaster_pid.read_text().split()[0]))
    first.kill()
    first.wait(timeout=30)
    assert source.read("carrier", VALUE_TYPES, AUGUST, UNITS).equals(before)
    assert int(folder.postmaster_pid.read_text().split()[0]) != first.pid


def test_a_read_that_loses_its_connection_fails_and_the_next_one_works(own_flights_url: str):
    source = FlightsSource(lambda: own_flights_url)
    with (
        psycopg.connect(own_flights_url, autocommit=True) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        with other.transaction():
            other.execute("LOCK TABLE flights.flights")  # the read stops here, in its statement
            reading = pool.submit(source.read, "carrier", VALUE_TYPES, [DAY], UNITS)
            ended = 0
            while not ended and not reading.done():
                ended = other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks "
                    "WHERE relation = 'flights.flights'::regclass AND NOT granted"
                ).rowcount
            with pytest.raises(SourceError, match="terminating connection"):
                reading.result(timeout=30)
        assert source.read("carrier", VALUE_TYPES, [DAY], UNITS).num_rows == 28


def test_readers_in_many_threads_do_not_meet(flights_url: str):
    source = FlightsSource(lambda: flights_url)
    together = threading.Barrier(4)

    def read_together(category: str) -> pa.Table:
        together.wait(timeout=30)
        return source.read(category, VALUE_TYPES, [DAY], UNITS)

    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(read_together, CATEGORIES))
    assert [table.column_names[2] for table in tables] == CATEGORIES
    for category, table in zip(CATEGORIES, tables, strict=True):
        assert table.equals(read(flights_url, category))


def test_an_unreachable_database_is_named_and_its_password_is_not():
    url = "postgresql://ann:s3cret@127.0.0.1:1/trips"
    with pytest.raises(SourceError) as caught:
        read(url, "carrier")
    assert "the flights database 'trips' at 127.0.0.1:1, user 'ann'" in str(caught.value)
    assert "no PostgreSQL answers there" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_wrong_password_is_refused_and_not_shown(flights_url: str):
    right = psycopg.conninfo.conninfo_to_dict(flights_url)["password"]
    wrong = flights_url.replace(str(right), "s3cret")
    with pytest.raises(SourceError, match="does not let us in") as caught:
        read(wrong, "carrier")
    assert "s3cret" not in str(caught.value)


def test_an_address_that_is_none_is_refused_without_quoting_it():
    with pytest.raises(SourceError, match="its address cannot be read") as caught:
        read("postgresql:/ann:s3cret@host", "carrier")
    assert "s3cret" not in str(caught.value)


def test_a_database_without_flights_says_to_load_them(database: str):
    with pytest.raises(
        SourceError, match=r"does not exist .*; load the flights: `backfill-assets up`"
    ):
        read(database, "carrier")
