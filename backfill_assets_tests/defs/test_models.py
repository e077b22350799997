"""The models of delay through Dagster: trained, scored, checked, and asked for one flight."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest

from backfill_assets.core.errors import RemoteUnreachableError, StaleAttemptError
from backfill_assets.core.operations import Claimed
from backfill_assets.defs.model_pipeline import PIPELINE
from backfill_assets.defs.models import TRAINED
from backfill_assets.flights.load import load_flights
from backfill_assets.flights.models.artifacts import ModelFolder
from backfill_assets.flights.models.catalogue import FLIGHT_MODELS
from backfill_assets.flights.models.source import ScoredFlights
from backfill_assets.flights.models.steps import SAVE
from backfill_assets.flights.models.training import train
from backfill_assets.resources.clock import FixedClock, RealClock
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.publishing_log import PublishingLog
from backfill_assets_tests.flights.models.workbench import (
    AFTER_THE_LEASE,
    JANUARY,
    Workbench,
)
from backfill_assets_tests.resources.dagster_of_tests import Dagster, failures

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from backfill_assets_tests.postgres_fixtures import Workshop

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

TWO_DAYS_CLOSED = datetime(2013, 7, 3, 17, tzinfo=UTC)
TOO_EARLY = datetime(2013, 6, 30, 17, tzinfo=UTC)
ALL = 2 * 3 * 4  # days, airports, assets


def load(url: str) -> None:
    load_flights(url)


@pytest.fixture
def flights_url(workshop: Workshop) -> str:
    """A database that holds the flights."""
    return workshop.clone("flights", load)


@pytest.fixture
def bench(database: str, flights_url: str, tmp_path: Path) -> Workbench:
    """A log database, and a folder for models that is still empty."""
    folder = ModelFolder(lambda: tmp_path / "models")
    bench = Workbench(database, flights_url, folder, tmp_path)
    bench.clock.now = datetime.now(UTC)
    bench.prepare()
    return bench


def dagster_at(
    now: datetime, bench: Workbench, root: Path, instance: dg.DagsterInstance
) -> Dagster:
    store = LocalPartitionStore(root, [FLIGHT_MODELS])
    store.prepare()
    project = Project(
        data_sets=[DataSet(FLIGHT_MODELS, ScoredFlights(bench.scoring))],
        store=store,
        clock=FixedClock(now),
        publishing_log=PublishingLog(lambda: bench.url, RealClock().now),
    )
    return Dagster(project, instance)


@pytest.fixture
def dagster(bench: Workbench, root: Path, instance: dg.DagsterInstance) -> Dagster:
    """Two days have closed, and no models are trained."""
    return dagster_at(TWO_DAYS_CLOSED, bench, root, instance)


@pytest.fixture
def trained(bench: Workbench, dagster: Dagster) -> Iterator[Dagster]:
    """The same with models, and their server."""
    bench.folder.save(train(bench.flights_url, JANUARY))
    with bench.server():
        yield dagster


def launch(dagster: Dagster, *keys: dg.AssetKey) -> dg.ExecuteInProcessResult:
    return dagster.repository.get_job("__ASSET_JOB").execute_in_process(
        instance=dagster.instance, asset_selection=list(keys), raise_on_error=False
    )


def look(dagster: Dagster) -> dict[str, dg.AssetCheckEvaluation]:
    """Look at the pipeline as the sensor has it looked at, and return its checks by name."""
    result = dagster.repository.get_job("flight_models_coverage_and_checks").execute_in_process(
        instance=dagster.instance, raise_on_error=True
    )
    found = result.get_asset_check_evaluations()
    return {one.check_name: one for one in found if one.asset_key == PIPELINE}


def training_sensor(dagster: Dagster) -> str | None:
    """Evaluate the sensor; return why it does not launch, or None where it does."""
    with dg.build_sensor_context(
        instance=dagster.instance, repository_def=dagster.repository
    ) as context:
        found = dagster.repository.get_sensor_def("model_training_sensor").evaluate_tick(context)
    return None if found.run_requests else found.skip_message


def test_days_wait_without_runs_until_models_are_trained_and_their_server_answers(
    bench: Workbench, dagster: Dagster
) -> None:
    assert dagster.settled() == (
        "24 partitions wait for their source: no models are trained yet; materialize "
        "flight_models/trained_models"
    )
    bench.folder.save(train(bench.flights_url, JANUARY))
    assert "the model server does not answer" in (dagster.settled() or "")
    with bench.server():
        asked = dagster.complete()
    assert {request.tags["dagster/priority"] for request in asked[:1]} == {"10"}  # the newest day
    assert len(dagster.project.store.scan(FLIGHT_MODELS).committed) == ALL
    assert len(bench.rows()) == 2 * 3


def test_a_partition_holds_the_score_of_each_flight(bench: Workbench, trained: Dagster) -> None:
    trained.complete()
    partition = FLIGHT_MODELS.partition("flight/risk", date(2013, 7, 2), "LGA")
    rows = trained.project.store.read(partition).to_pylist()
    with psycopg.connect(bench.flights_url) as connection:
        names = connection.execute(
            "SELECT flight FROM flights.weathered_flights WHERE date = '2013-07-02'"
            " AND unit = 'LGA' ORDER BY flight COLLATE \"C\""
        ).fetchall()
    assert [(row["flight"],) for row in rows] == names
    assert all(0 < row["value"] < 1 for row in rows)
    with psycopg.connect(bench.url) as connection:
        saved = connection.execute(
            "SELECT flight, risk FROM delay_score WHERE date = '2013-07-02' AND unit = 'LGA'"
        ).fetchall()
    assert sorted(saved) == [(row["flight"], row["value"]) for row in rows]


def test_scores_of_models_that_were_replaced_are_stale_and_are_made_again(
    bench: Workbench, trained: Dagster
) -> None:
    trained.complete()
    trained.settled()
    before = trained.project.store.scan(FLIGHT_MODELS).committed
    other = train(bench.flights_url, replace(JANUARY, seed=1))
    bench.folder.save(other)
    restated = trained.complete()
    assert {request.tags["backfill_assets/on_committed"] for request in restated} == {
        "replace stale"
    }
    assert trained.project.store.scan(FLIGHT_MODELS).committed == before
    versions = bench.ask("SELECT model, count(*)::text FROM delay_scores GROUP BY model")
    assert sorted(count for _, count in versions) == ["6", "6"]
    assert other.card.version in dict(versions)


def test_models_are_trained_by_an_asset_that_shows_what_they_are_worth(
    bench: Workbench, dagster: Dagster
) -> None:
    assert training_sensor(dagster) is None  # it launches
    assert launch(dagster, TRAINED).success
    card = bench.folder.current()
    assert card is not None
    assert training_sensor(dagster) == f"Models {card.version} are the current ones."
    told = dagster.instance.get_latest_materialization_event(TRAINED)
    assert told is not None
    event = told.asset_materialization
    assert event is not None
    assert event.metadata["version"].value == card.version
    assert event.metadata["flights"].value == 166_158
    # Two days only have closed since June.
    assert event.metadata["area under curve by month"].value.keys() == {"all", "2013-07"}
    assert 0.6 < float(str(event.metadata["area under curve"].value)) < 0.9


def test_models_are_not_trained_before_their_months_have_closed(
    bench: Workbench, root: Path, instance: dg.DagsterInstance
) -> None:
    dagster = dagster_at(TOO_EARLY, bench, root, instance)
    why = "The models learn from the flights up to 2013-06-30, which closes at"
    assert (training_sensor(dagster) or "").startswith(why)
    (message,) = failures(launch(dagster, TRAINED))
    assert why in message
    assert bench.folder.current() is None


def test_a_training_that_failed_is_not_repeated_at_once(
    bench: Workbench, dagster: Dagster, database: str
) -> None:
    bench.flights_url = database  # without flights
    result = dagster.repository.get_job("train_flight_models").execute_in_process(
        instance=dagster.instance, raise_on_error=False
    )
    assert not result.success
    assert training_sensor(dagster) == (
        "A training ended without models; the next one follows 0:10:00 after it."
    )


def test_a_training_that_was_killed_is_reported_as_failed(dagster: Dagster) -> None:
    run = dagster.unfinished(
        dg.DagsterRunStatus.STARTED,
        [],
        {},
        job="train_flight_models",
        started=timedelta(minutes=5),
    )
    assert "A training ended without models" in (training_sensor(dagster) or "")
    told = dagster.instance.get_run_by_id(run.run_id)
    assert told is not None
    assert told.status is dg.DagsterRunStatus.FAILURE


def test_late_results_and_lost_rows_are_seen_and_named(bench: Workbench, trained: Dagster) -> None:
    trained.complete()
    checks = look(trained)
    assert {name: one.passed for name, one in checks.items()} == {
        "no_late_results": True,
        "rows_agree_with_files": True,
    }

    come_back_late(bench)
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute("DELETE FROM delay_scores WHERE date = '2013-07-01' AND unit = 'JFK'")
    checks = look(trained)
    late, lost = checks["no_late_results"], checks["rows_agree_with_files"]
    assert not late.passed
    assert late.severity is dg.AssetCheckSeverity.WARN
    assert late.description == (
        "1 attempts came back late and changed nothing; 0 of them wanted to store something else "
        "than what stands"
    )
    assert "| save | 1 | slow |" in str(late.metadata["late arrivals"].value)
    bench.clock.pass_by(timedelta(days=8))
    assert look(trained)["no_late_results"].passed  # it stands in the trail, and warns no more
    assert not lost.passed
    assert lost.metadata["without a row"].value == ["2013-07-01|JFK"]


def come_back_late(bench: Workbench) -> None:
    """Have a first attempt at saving come back after a second one has saved."""
    slow, quick = bench.log("slow"), bench.log("quick")
    key = "flight_models/2013-08-01/JFK/none"
    claim = slow.claim_many(SAVE, {key: None})[key]
    assert isinstance(claim, Claimed)
    bench.clock.pass_by(AFTER_THE_LEASE)
    quick.run_transaction(SAVE, key, None, lambda _attempt, _connection: "same")
    with pytest.raises(StaleAttemptError), slow.writing(claim.attempt) as work:
        work.result = "same"
    slow.close()
    quick.close()


def test_one_flight_is_scored_once_for_each_request(bench: Workbench, trained: Dagster) -> None:
    def ask(flight: str) -> dg.ExecuteInProcessResult:
        form = {"request": "r1", "date": "2013-10-07", "airport": "EWR", "flight": flight}
        return trained.repository.get_job("score_flight").execute_in_process(
            instance=trained.instance,
            run_config={"ops": {"score": {"config": form}}},
            raise_on_error=False,
        )

    assert ask("UA1545").success
    assert ask("UA1545").success
    (refused,) = failures(ask("UA1"))
    assert "the key was used for another payload before" in refused
    assert bench.ask("SELECT request, flight FROM requested_scores") == [("r1", "UA1545")]


def test_the_pages_show_what_is_tried_again_and_why(bench: Workbench, dagster: Dagster) -> None:
    bench.folder.save(train(bench.flights_url, JANUARY))
    subject = bench.subject("JFK", date(2013, 7, 1))
    with pytest.raises(RemoteUnreachableError):
        bench.run("http://127.0.0.1:9", subject, log=bench.log("one"))
    assert launch(dagster, PIPELINE).success
    told = dagster.instance.get_latest_materialization_event(PIPELINE)
    assert told is not None
    event = told.asset_materialization
    assert event is not None
    (reason,) = event.metadata["reasons"].value
    assert reason["operation"] == "score_risk"
    assert reason["key"] == subject.key
    assert "the model server does not answer" in reason["error"]
