"""Runs in Dagster claim what they compute: attempts and reasons are seen, nothing is done twice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.resources.clock import RealClock
from backfill_assets.stores.publishing_log import PublishingLog

from .dagster_of_tests import Dagster, a_range, failures
from .small_project import DAY_4, DAY_5, EXPECTED, REVENUE, SHOPS, SOLD, Shops, a_project, committed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from backfill_assets.resources.project import Project

NEWEST = a_range("2024-03-05|Paris", "2024-03-05|Nice")
NOBODY = PartitionSet.empty(SHOPS)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def source() -> Shops:
    return Shops()


@pytest.fixture
def project(tmp_path: Path, database: str, source: Shops) -> Project:
    made = a_project(tmp_path / "store", source=source)
    return replace(made, publishing_log=PublishingLog(lambda: database, RealClock().now))


@pytest.fixture
def dagster(project: Project, instance: dg.DagsterInstance) -> Dagster:
    return Dagster(project, instance)


def rows_of_the_log(database: str) -> dict[str, int]:
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT status, count(*) FROM idempotency_log GROUP BY status")
        return dict(found.fetchall())


def test_every_partition_that_the_sensor_had_made_has_one_completed_attempt(
    dagster: Dagster, database: str
) -> None:
    dagster.complete()

    assert rows_of_the_log(database) == {"COMPLETED": EXPECTED}
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "SELECT outcome, attempt, count(*) FROM idempotency_attempt GROUP BY outcome, attempt"
        ).fetchall()
    assert found == [("SUCCEEDED", 1, EXPECTED)]


def test_a_tick_over_finished_work_leaves_the_log_alone(dagster: Dagster, database: str) -> None:
    dagster.complete()
    versions = "SELECT idempotency_key, xmin::text FROM idempotency_log ORDER BY idempotency_key"
    with psycopg.connect(database) as connection:
        before = connection.execute(versions).fetchall()

        assert dagster.settled() is not None

        assert connection.execute(versions).fetchall() == before


def test_the_page_of_a_partition_tells_its_attempt_and_why_the_last_one_failed(
    dagster: Dagster, source: Shops
) -> None:
    source.failing = {DAY_5}
    dagster.ask([SOLD], NEWEST)
    source.failing = set()

    dagster.ask([SOLD], NEWEST)

    metadata = dagster.events(SOLD)[0].metadata
    assert metadata["attempt"].value == 2
    assert metadata["previous attempt"].value == "the till of 2024-03-05 is broken"


def test_a_person_who_asks_for_what_another_run_is_at_work_on_is_told_so(
    dagster: Dagster, project: Project, source: Shops
) -> None:
    day = PartitionSet.of(SHOPS, [SHOPS.partition("article/sold", DAY_5, "Lyon")])
    with project.store.attempt("other"), project.claims("other") as other:
        assert other is not None
        other.take(day, again=NOBODY)
        result = dagster.ask([SOLD], a_range("2024-03-04|Paris", "2024-03-05|Nice"))

    (said,) = failures(result)
    assert "another run is at work on 1 of the partitions (2024-03-05)" in said
    assert len(committed(project)) == 5  # the others
    assert source.days_asked == {DAY_4, DAY_5}


def test_what_the_other_run_has_done_in_the_end_counts_as_done(
    dagster: Dagster, project: Project, source: Shops
) -> None:
    lyon = SHOPS.partition("article/sold", DAY_5, "Lyon")
    with project.store.attempt("other") as attempt, project.claims("other") as other:
        assert other is not None
        other.take(PartitionSet.of(SHOPS, [lyon]), again=NOBODY)

        def finish() -> None:
            if lyon not in committed(project):
                frame = Shops().read("article", ["sold"], [DAY_5], ["Lyon"])
                attempt.stage(lyon, frame.rename_columns(["date", "unit", "article", "value"]))
                (published,) = attempt.publish()
                other.complete({lyon: published.record.digest})

        source.on_read = finish
        result = dagster.ask([SOLD], NEWEST)

    assert result.success
    assert "2024-03-05|Lyon" in {event.partition for event in dagster.events(SOLD)}


def test_restating_a_day_is_a_generation_of_its_own(
    dagster: Dagster, source: Shops, database: str
) -> None:
    dagster.complete()
    source.factor = 2

    dagster.ask([REVENUE], NEWEST | {"backfill_assets/on_committed": "replace"})

    with psycopg.connect(database) as connection:
        found = connection.execute(
            "SELECT idempotency_key, result FROM idempotency_log WHERE generation = 2"
            " ORDER BY idempotency_key"
        ).fetchall()
    assert [key for key, _ in found] == [
        f"shops/article/revenue/2024-03-05/{unit}@v1" for unit in ("Lyon", "Nice", "Paris")
    ]
    assert all(len(json.dumps(result)) > 10 for _, result in found)
