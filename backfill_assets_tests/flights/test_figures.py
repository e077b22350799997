"""Are the figures right? Against pandas for the whole year, and by hand for some days."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.source import FlightsSource
from backfill_assets_tests.flights.figures import VALUE_TYPES, read_flights, rows

if TYPE_CHECKING:
    import pandas as pd

YEAR = [date(2013, 1, 1) + timedelta(days=n) for n in range(365)]
UNITS = ["EWR", "JFK", "LGA"]


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    return read_flights()


def read(url: str, category: str, days: list[date], units: list[str]) -> list[tuple[Any, ...]]:
    table = FlightsSource(lambda: url).read(category, VALUE_TYPES, days, units)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("category", [category.name for category in FLIGHTS.categories])
def test_every_figure_of_the_year_is_the_one_that_pandas_computes(
    flights_url: str, flights: pd.DataFrame, category: str
):
    # Equal to the last bit, and in the same order: day, airport, group.
    assert read(flights_url, category, YEAR, UNITS) == rows(flights, category)


@pytest.mark.parametrize("category", [category.name for category in FLIGHTS.categories])
def test_every_category_counts_every_flight_once(flights_url: str, category: str):
    departures = dict.fromkeys(UNITS, 0)
    cancellations = dict.fromkeys(UNITS, 0)
    for _, unit, _, departed, cancelled, _, _ in read(flights_url, category, YEAR, UNITS):
        departures[unit] += departed
        cancellations[unit] += cancelled
    assert departures == {"EWR": 117_596, "JFK": 109_416, "LGA": 101_509}
    assert cancellations == {"EWR": 3_239, "JFK": 1_863, "LGA": 3_153}


# The sums in the literals below were counted with awk from flights.csv.


def test_the_storm_of_february_9_at_laguardia(flights_url: str):
    day = date(2013, 2, 9)
    assert read(flights_url, "carrier", [day], ["LGA"]) == [
        (day, "LGA", "AA", 10, 19, 339 / 10, 135 / 10),
        (day, "LGA", "B6", 6, 11, -26 / 6, -175 / 6),
        (day, "LGA", "DL", 18, 31, 27 / 18, -427 / 18),
        (day, "LGA", "EV", 5, 2, 24 / 5, -75 / 5),
        (day, "LGA", "FL", 5, 5, 19 / 5, -59 / 5),
        (day, "LGA", "MQ", 6, 23, 9 / 6, -58 / 6),
        (day, "LGA", "UA", 2, 8, -0.5, -27.0),
        (day, "LGA", "US", 2, 15, 11.0, -9.5),
        (day, "LGA", "WN", 7, 4, 12.0, -41 / 7),
    ]


def test_a_group_of_cancelled_flights_only_appears_and_has_no_delay(flights_url: str):
    day = date(2013, 2, 9)
    cancelled = [row for row in read(flights_url, "destination", [day], ["EWR"]) if row[3] == 0]
    assert [row[2] for row in cancelled] == [
        "BDL", "BOS", "BZN", "EGE", "HDN", "HOU", "IND", "JAC", "MHT",
        "MSY", "MTJ", "MYR", "PVD", "RSW", "SDF", "SJU", "SNA", "SYR",
    ]  # fmt: skip
    assert cancelled[1] == (day, "EWR", "BOS", 0, 6, None, None)


def test_a_flight_that_departed_and_never_arrived_has_no_arrival_delay(flights_url: str):
    day = date(2013, 1, 1)
    to_oklahoma = [x for x in read(flights_url, "destination", [day], ["EWR"]) if x[2] == "OKC"]
    assert to_oklahoma == [(day, "EWR", "OKC", 1, 0, 46.0, None)]


def test_days_on_which_the_clocks_change(flights_url: str):
    spring, autumn = date(2013, 3, 10), date(2013, 11, 3)
    hours = read(flights_url, "hour", [spring, autumn], ["EWR", "JFK"])
    jfk_in_spring = [row[2:] for row in hours if row[:2] == (spring, "JFK")]
    assert [row[0] for row in jfk_in_spring] == list(range(5, 24))
    assert sum(row[1] for row in jfk_in_spring) == 314
    assert jfk_in_spring[11] == (16, 29, 1, 475 / 29, -138 / 29)
    ewr_in_autumn = [row[2:] for row in hours if row[:2] == (autumn, "EWR")]
    assert [row[0] for row in ewr_in_autumn] == list(range(5, 22))
    assert sum(row[1] for row in ewr_in_autumn) == 315
    assert ewr_in_autumn[0] == (5, 1, 0, -1.0, -9.0)


def test_manufacturers_are_found_by_tail_number(flights_url: str):
    day = date(2013, 8, 3)
    assert [row[2:] for row in read(flights_url, "manufacturer", [day], ["JFK"])] == [
        ("AIRBUS", 78, 0, 813 / 78, 899 / 78),
        ("AIRBUS INDUSTRIE", 21, 0, 657 / 21, 641 / 21),
        ("BARKER JACK L", 1, 0, 36.0, 42.0),
        ("BOEING", 66, 0, 652 / 66, 724 / 66),
        ("BOMBARDIER INC", 38, 0, 398 / 38, 266 / 38),
        ("CANADAIR", 2, 0, 96.5, 113.0),
        ("CESSNA", 1, 0, -1.0, 15.0),
        ("EMBRAER", 54, 0, 883 / 54, 684 / 52),
        ("MCDONNELL DOUGLAS AIRCRAFT CO", 3, 0, 23 / 3, -10.0),
        ("PIPER", 1, 0, -2.0, 13.0),
        ("unknown", 45, 1, 644 / 45, 794 / 45),
    ]
