"""Runs that a crash left in Dagster's memory, in every state in which it can leave them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.resources.abandoned_runs import fail_abandoned_runs, unfinished_runs
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.project import Project
from backfill_assets.resources.run_requests import (
    RANGE_END_TAG,
    RANGE_START_TAG,
    coverage_job_name,
)
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets_tests.recovery.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets_tests.recovery.running import Product

Status = dg.DagsterRunStatus
LEFT_BEHIND = (Status.NOT_STARTED, Status.STARTING, Status.STARTED, Status.CANCELING)
MADE_AGAIN_SECONDS = 180


@pytest.fixture
def instance(complete_product: Product) -> Iterator[dg.DagsterInstance]:
    """Dagster's memory of a product that is not up."""
    server = EmbeddedPostgres(complete_product.home / "postgres")
    server.ensure_running()
    with complete_product.dagster() as opened:
        yield opened
    server.leave()


def a_run(status: dg.DagsterRunStatus, job_name: str, **more: Any) -> dg.DagsterRun:
    return dg.DagsterRun(job_name=job_name, run_id=str(uuid.uuid4()), status=status, **more)


def leave_behind(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, key: str) -> str:
    """Add a run that was asked for one partition, and return its id."""
    run = a_run(
        status,
        "flights_partitions",
        tags={RANGE_START_TAG: key, RANGE_END_TAG: key},
        asset_selection=frozenset({dg.AssetKey(["flights", "carrier", "departures"])}),
    )
    return instance.add_run(run).run_id


def test_runs_that_a_crash_left_behind_do_not_keep_their_partitions(
    complete_product: Product, instance: dg.DagsterInstance
) -> None:
    product = complete_product
    left: dict[str, str] = {}
    for number, status in enumerate(LEFT_BEHIND, start=5):
        day = f"2013-01-{number:02}"
        (product.store.root / f"flights/carrier/departures/v1/{day}/JFK.parquet").unlink()
        left[leave_behind(instance, status, f"{day}|JFK")] = status.value

    # Dead runs of other assets would take the few places that there are for runs.
    for job_name in (coverage_job_name(FLIGHTS), "hold_partitions"):
        left[instance.add_run(a_run(Status.STARTED, job_name)).run_id] = job_name

    product.up()
    wait_for("the deleted files", product.is_complete, seconds=MADE_AGAIN_SECONDS, every=0.5)

    for run_id, what in left.items():
        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert run.status is Status.FAILURE, f"it was {what}"
    assert product.stop() == 0


def test_a_run_that_moved_on_lately_is_left_alone(
    complete_product: Product, instance: dg.DagsterInstance
) -> None:
    ids = [leave_behind(instance, status, "2013-01-05|JFK") for status in LEFT_BEHIND]
    ids.append(instance.add_run(a_run(Status.STARTED, coverage_job_name(FLIGHTS))).run_id)
    records = unfinished_runs(instance, [FLIGHTS])
    now = datetime.now(UTC)
    store = complete_product.store
    project = Project(data_sets=[], store=store, clock=RealClock())

    def failed_after(seconds: float) -> set[str]:
        later = now + timedelta(seconds=seconds)
        return set(fail_abandoned_runs(instance, project, records, now=later))

    assert failed_after(50) == set()
    with store.attempt(ids[2]):  # a process works for this one
        assert failed_after(70) == set(ids) - {ids[2]}
    assert {r.dagster_run.run_id for r in unfinished_runs(instance, [FLIGHTS])} == {ids[2]}
