"""The example business through Dagster: real flights in, partitions and a report out."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.load import load_flights
from backfill_assets.flights.source import FlightsSource
from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.resources.dagster_of_tests import Dagster, a_range, failures

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backfill_assets_tests.postgres_fixtures import Prepare

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

REPORT = dg.AssetKey(["flights", "daily_report"])


def load(url: str) -> None:
    load_flights(url)


@pytest.fixture
def dagster(
    root: Path, instance: dg.DagsterInstance, clone_database: Callable[[str, Prepare], str]
) -> Dagster:
    """The flights at noon of 3 January 2013: two days have closed."""
    url = clone_database("flights", load)
    store = LocalPartitionStore(root, [FLIGHTS])
    store.prepare()
    project = Project(
        data_sets=[DataSet(FLIGHTS, FlightsSource(lambda: url))],
        store=store,
        clock=FixedClock(datetime(2013, 1, 3, 17, tzinfo=UTC)),
    )
    return Dagster(project, instance)


def report(dagster: Dagster, day: str) -> dg.ExecuteInProcessResult:
    return dagster.repository.get_job("__ASSET_JOB").execute_in_process(
        instance=dagster.instance,
        asset_selection=[REPORT],
        partition_key=day,
        raise_on_error=False,
    )


def test_two_days_of_flights_are_committed_with_the_right_figures_and_reported_on(
    dagster: Dagster,
) -> None:
    (missing,) = failures(report(dagster, "2013-01-01"))
    assert "is not committed" in missing
    assert "flights/carrier/" in missing

    dagster.complete()
    store = dagster.project.store
    assert len(store.scan(FLIGHTS).committed) == 48
    rows = store.read(FLIGHTS.partition("carrier/departures", date(2013, 1, 1), "JFK")).to_pylist()
    # Flights of 2013-01-01 from JFK that departed, by carrier, counted in the package's own table.
    assert {row["carrier"]: row["value"] for row in rows} == {
        "9E": 28,
        "AA": 40,
        "B6": 125,
        "DL": 51,
        "EV": 2,
        "HA": 1,
        "MQ": 19,
        "UA": 11,
        "US": 7,
        "VX": 12,
    }

    assert report(dagster, "2013-01-01").success
    told = dagster.instance.get_latest_materialization_event(REPORT)
    assert told is not None
    event = told.asset_materialization
    assert event is not None
    assert "| UA" in str(event.metadata["carriers"].value)


def test_a_persons_run_over_an_open_day_of_flights_is_refused_in_local_time(
    dagster: Dagster,
) -> None:
    result = dagster.ask(
        [FLIGHTS.query("carrier/departures")], a_range("2013-01-02|EWR", "2013-01-03|JFK")
    )
    (message,) = failures(result)
    assert "its day closes at 2013-01-04T08:00:00-05:00" in message
    assert len(dagster.project.store.scan(FLIGHTS).committed) == 2
