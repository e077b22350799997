"""The models: the same data, the same scores; a row's score is its own; they are of use."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import ModelError, SourceError
from backfill_assets.flights.models.features import features, known_facts
from backfill_assets.flights.models.training import RECIPE_OF_2013, area_under_curve, train
from backfill_assets_tests.flights.models.workbench import DAY, JANUARY

if TYPE_CHECKING:
    from backfill_assets.flights.models.scores import DelayModels

IN_ANOTHER_PROCESS = """
import json, sys
from datetime import date
from backfill_assets.flights.models.training import Recipe, train
models = train(sys.argv[1], Recipe(last_day=date(2013, 1, 31), trees=5, isolation_trees=5))
print(json.dumps([models.card.version, models.card.probes]))
"""


def rows_of(url: str, models: DelayModels) -> list[list[float | None]]:
    return features(known_facts(url, [DAY], ["JFK"]), models.card.vocabularies).rows


def test_another_process_trains_models_of_the_same_version_and_the_same_scores(
    flights_url: str, january: DelayModels
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, flights_url],
        check=True,
        capture_output=True,
        env={"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "7"},
    )
    assert json.loads(done.stdout) == [
        january.card.version,
        json.loads(json.dumps(january.card.probes)),
    ]


def test_another_recipe_is_another_version(flights_url: str, january: DelayModels) -> None:
    other = train(flights_url, replace(JANUARY, seed=1))
    assert other.card.version != january.card.version
    assert other.card.origin["data"] == january.card.origin["data"]


def test_a_score_depends_on_its_row_alone(flights_url: str, january: DelayModels) -> None:
    rows = rows_of(flights_url, january)
    risks, anomalies = january.risks(rows), january.anomalies(rows)
    assert january.risks(rows[::-1]) == risks[::-1]
    assert january.anomalies(rows[::-1]) == anomalies[::-1]
    for place in (0, 100, len(rows) - 1):
        assert january.risks([rows[place]]) == [risks[place]]
        assert january.anomalies([rows[place]]) == [anomalies[place]]
        assert january.risks([*rows, *rows][place : place + 50])[0] == risks[place]
    assert january.risks([]) == january.anomalies([]) == []


@pytest.fixture(scope="module")
def half_year(flights_url: str) -> DelayModels:
    """The models as the project trains them."""
    return train(flights_url)


def test_the_models_of_half_a_year_order_flights_that_they_have_not_seen(
    flights_url: str, half_year: DelayModels
) -> None:
    models = half_year
    curve = area_under_curve(flights_url, models, date(2013, 7, 1), date(2013, 12, 31))
    assert list(curve) == [
        "all", "2013-07", "2013-08", "2013-09", "2013-10", "2013-11", "2013-12",
    ]  # fmt: skip
    assert 0.72 < curve["all"] < 0.78  # measured: 0.745
    assert min(curve.values()) > 0.65
    assert models.card.origin["recipe"]["last_day"] == "2013-06-30"
    assert models.card.flights == 166_158


def test_a_flight_in_a_storm_is_riskier_and_stranger_than_the_same_one_in_good_weather(
    flights_url: str, half_year: DelayModels
) -> None:
    names = half_year.card.features
    fair = rows_of(flights_url, half_year)[100]
    storm = list(fair)
    changes = {"wind_speed": 40.0, "wind_gust": 55.0, "precipitation": 1.0, "visibility": 0.1}
    for name, value in changes.items():
        storm[names.index(name)] = value
    assert half_year.risks([storm])[0] > half_year.risks([fair])[0]
    assert half_year.anomalies([storm])[0] > half_year.anomalies([fair])[0]


def test_too_few_flights_are_refused(flights_url: str) -> None:
    with pytest.raises(SourceError, match="842 flights from 2013-01-01 to 2013-01-01: 1000"):
        train(flights_url, replace(RECIPE_OF_2013, last_day=date(2013, 1, 1)))


def test_rows_of_another_width_and_infinite_numbers_are_refused(january: DelayModels) -> None:
    with pytest.raises(ModelError, match="a row needs 17 numbers, unit, carrier"):
        january.risks([[1.0, 2.0]])
    with pytest.raises(ModelError, match="infinite"):
        january.risks([[float("inf")] * 17])
