"""How the pipeline goes on after failures, and how it answers single requests."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import (
    BusyError,
    KeyReusedError,
    NotAppliedError,
    OperationError,
    RemoteError,
    SourceError,
    SourceNotReadyError,
)
from backfill_assets.flights.models.artifacts import ModelFolder
from backfill_assets.flights.models.source import ScoredFlights
from backfill_assets_tests.flights.models.fault_proxy import Fault, FaultProxy
from backfill_assets_tests.flights.models.workbench import AFTER_ANY_WAIT, DAY, Workbench

if TYPE_CHECKING:
    from pathlib import Path

UNITS = ["EWR", "JFK", "LGA"]
REQUEST = "5f0c7a4e-0d5e-4f55-9d5c-1f3a9f0b7c11"


def test_a_retry_resumes_at_the_step_that_failed_and_gets_the_stored_results_of_the_others(
    workbench: Workbench,
) -> None:
    subject = workbench.subject()
    with workbench.server() as upstream:
        proxy = FaultProxy(upstream, [Fault.NONE, Fault.LOST_REPLY])
        with proxy.running():
            first = workbench.run(proxy.url, subject, log=workbench.log("one"))
            (problem,) = first.problems.values()
            assert isinstance(problem.__cause__, RemoteError)
            assert not workbench.rows()

            waits = workbench.run(proxy.url, subject, log=workbench.log("two"))
            assert [type(e) for e in waits.problems.values()] == [BusyError]

            workbench.clock.pass_by(AFTER_ANY_WAIT)
            assert not workbench.run(proxy.url, subject, log=workbench.log("three")).problems
    assert [seen.path for seen in proxy.seen] == ["/v1/risk", "/v1/anomaly", "/v1/anomaly"]
    assert proxy.seen[1].key == proxy.seen[2].key  # the same in both attempts
    assert workbench.outcomes(subject) == {
        "preprocess": ["SUCCEEDED"],
        "score_risk": ["SUCCEEDED"],
        "score_anomaly": ["UNKNOWN", "SUCCEEDED"],
        "save": ["SUCCEEDED"],
    }


def test_one_airport_that_fails_keeps_no_other_from_being_saved(workbench: Workbench) -> None:
    subjects = [workbench.subject(unit) for unit in UNITS]
    with workbench.server() as upstream:
        proxy = FaultProxy(upstream, [Fault.NONE, Fault.CUT_REPLY])
        with proxy.running():
            progress = workbench.run(proxy.url, *subjects, log=workbench.log("one"))
    assert list(progress.problems) == [subjects[1].key]
    assert [unit for unit, _ in workbench.rows()] == ["EWR", "LGA"]


def test_a_refusal_is_definite_and_its_reason_is_kept(workbench: Workbench, tmp_path: Path) -> None:
    """The server has no such models: they were trained elsewhere."""
    subject = workbench.subject()
    elsewhere = ModelFolder(lambda: tmp_path / "elsewhere")
    empty = Workbench(workbench.url, workbench.flights_url, elsewhere, tmp_path, workbench.clock)
    with empty.server() as (host, port):
        progress = workbench.run(f"http://{host}:{port}", subject, log=workbench.log("one"))
    (problem,) = progress.problems.values()
    assert isinstance(problem.__cause__, NotAppliedError)
    assert "404" in str(problem)
    assert "no models of version" in str(problem)
    assert workbench.outcomes(subject)["score_risk"] == ["FAILED"]


def test_without_a_server_days_wait_and_no_attempt_is_spent(workbench: Workbench) -> None:
    source = ScoredFlights(workbench.scoring)
    with pytest.raises(SourceNotReadyError, match="where the model server listens"):
        source.read("flight", ["risk"], [DAY], UNITS)
    with workbench.server():
        assert source.why_not_ready() is None
    workbench.clock.pass_by(AFTER_ANY_WAIT)
    with pytest.raises(SourceNotReadyError, match="does not answer"):
        source.read("flight", ["risk"], [DAY], UNITS)
    assert "does not answer" in (source.why_not_ready() or "")
    assert workbench.ask("SELECT DISTINCT spent FROM idempotency_log WHERE status = 'FAILED'") == [
        (0,)
    ]
    workbench.clock.pass_by(AFTER_ANY_WAIT)
    with workbench.server():
        assert source.read("flight", ["risk"], [DAY], UNITS).num_rows == 737


def test_without_trained_models_days_wait(workbench: Workbench, tmp_path: Path) -> None:
    empty = ModelFolder(lambda: tmp_path / "none")
    bench = Workbench(workbench.url, workbench.flights_url, empty, tmp_path, workbench.clock)
    source = ScoredFlights(bench.scoring)
    assert source.why_not_ready() == (
        "no models are trained yet; materialize flight_models/trained_models"
    )
    with pytest.raises(SourceNotReadyError, match="no models are trained yet"):
        source.read("flight", ["risk"], [DAY], UNITS)


def test_many_days_at_once_are_the_same_as_one_by_one(workbench: Workbench) -> None:
    days = [DAY + timedelta(days=n) for n in range(12)]  # more than one batch of calls
    source = ScoredFlights(workbench.scoring)
    with workbench.server():
        whole = source.read("flight", ["risk", "anomaly"], days, UNITS)
        alone = source.read("flight", ["risk", "anomaly"], [days[3]], ["JFK"])
    rows = [r for r in whole.to_pylist() if (r["date"], r["unit"]) == (days[3], "JFK")]
    assert rows == alone.to_pylist()
    assert len(rows) == 327
    assert len(workbench.rows()) == 36


def test_a_carriers_figure_is_the_mean_over_its_flights(workbench: Workbench) -> None:
    source = ScoredFlights(workbench.scoring)
    with workbench.server():
        flights = source.read("flight", ["risk"], [DAY], ["JFK"]).to_pylist()
        carriers = source.read("carrier", ["risk"], [DAY], ["JFK"]).to_pylist()
    risks = [row["risk"] for row in flights if row["flight"].startswith("HA")]
    assert len(risks) == 1
    assert {row["carrier"]: row["risk"] for row in carriers}["HA"] == risks[0]
    american = [row["risk"] for row in flights if row["flight"].startswith("AA")]
    assert {row["carrier"]: row["risk"] for row in carriers}["AA"] == pytest.approx(
        sum(american) / len(american), abs=1e-6
    )


def test_a_request_that_comes_again_gets_the_stored_answer(workbench: Workbench) -> None:
    with workbench.server():
        first = workbench.scoring.score_flight(REQUEST, DAY, "EWR", "UA1071")
    # The server is gone: nothing is asked again.
    assert workbench.scoring.score_flight(REQUEST, DAY, "EWR", "UA1071") == first
    assert 0 < first.risks[0] < 1
    assert workbench.ask("SELECT request, unit, flight FROM requested_scores") == [
        (REQUEST, "EWR", "UA1071")
    ]


def test_a_request_that_comes_again_for_another_flight_is_refused(workbench: Workbench) -> None:
    with workbench.server():
        workbench.scoring.score_flight(REQUEST, DAY, "EWR", "UA1071")
        with pytest.raises(KeyReusedError, match="was used for another payload"):
            workbench.scoring.score_flight(REQUEST, DAY, "EWR", "UA1078")
    assert len(workbench.ask("SELECT 1 FROM requested_scores")) == 1


def test_a_request_for_a_flight_that_was_never_scheduled_is_an_error_that_says_so(
    workbench: Workbench,
) -> None:
    with pytest.raises(OperationError, match="XX1 from EWR on 2013-07-04: none was scheduled"):
        workbench.scoring.score_flight(REQUEST, DAY, "EWR", "XX1")


def test_flights_that_cannot_be_read_are_a_failure_of_the_source_and_spend_an_attempt(
    workbench: Workbench, database: str
) -> None:
    workbench.flights_url = database  # a database without flights
    with workbench.server(), pytest.raises(SourceError, match="load the flights"):
        ScoredFlights(workbench.scoring).read("flight", ["risk"], [date(2013, 7, 5)], ["JFK"])
    assert workbench.ask("SELECT status, spent FROM idempotency_log") == [("FAILED", 1)]
