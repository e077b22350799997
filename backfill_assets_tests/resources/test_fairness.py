"""Failing partitions back off one by one, cost no budget, and starve nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest

from backfill_assets.core.cycles import Bounds
from backfill_assets.resources.clock import RealClock
from backfill_assets.stores.publishing_log import ALERT_ATTEMPTS, PublishingLog

from .dagster_of_tests import Dagster
from .small_project import DAY_1, DAY_2, DAY_3, DAY_4, DAY_5, EXPECTED, Shops, a_project, committed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from backfill_assets.resources.project import Project

BOTH_NEWEST = {DAY_5, DAY_4}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def project(tmp_path: Path, database: str) -> Project:
    """Shops whose two newest days always fail, with a bound of two days a cycle."""
    source = Shops(failing=set(BOTH_NEWEST))
    made = a_project(tmp_path / "store", source=source, bounds=Bounds(max_days=2))
    return replace(made, publishing_log=PublishingLog(lambda: database, RealClock().now))


@pytest.fixture
def dagster(project: Project, instance: dg.DagsterInstance) -> Dagster:
    return Dagster(project, instance)


def source_of(project: Project) -> Shops:
    source = project.data_sets[0].source
    assert isinstance(source, Shops)
    return source


def a_day_passes(database: str, *, failing: int = 0) -> None:
    """Let what failed have failed a day ago, and some more times before."""
    statement = """
        UPDATE idempotency_log
           SET updated_at = updated_at - interval '1 day', spent = spent + %s
         WHERE status = 'FAILED'
    """
    with psycopg.connect(database) as connection:
        connection.execute(statement, [failing])


def test_history_fills_while_the_newest_days_always_fail(
    project: Project, dagster: Dagster
) -> None:
    dagster.complete()

    missing = project.plan(project.catalogues[0]).missing
    assert set(missing.days()) == BOTH_NEWEST
    assert len(committed(project)) + len(missing) == EXPECTED


def test_what_failed_is_not_tried_again_before_its_time_and_the_tick_says_so(
    project: Project, dagster: Dagster
) -> None:
    dagster.complete()
    source_of(project).questions.clear()

    reason = dagster.settled()

    assert source_of(project).questions == []
    assert reason is not None
    assert "24 missing partitions failed lately and back off" in reason


def test_what_failed_is_tried_again_when_its_time_has_come(
    project: Project, dagster: Dagster, database: str
) -> None:
    dagster.complete()
    a_day_passes(database)
    source_of(project).failing = set()

    dagster.complete()

    assert len(committed(project)) == EXPECTED


def test_once_it_is_committed_its_failures_are_forgotten(
    project: Project, dagster: Dagster, database: str
) -> None:
    dagster.complete()
    a_day_passes(database)
    source_of(project).failing = set()
    dagster.complete()
    dagster.settled()

    assert project.failures(project.catalogues[0]) == []


def test_losing_the_memory_costs_a_retry_only(
    project: Project, dagster: Dagster, database: str
) -> None:
    dagster.complete()
    with psycopg.connect(database) as connection:
        connection.execute("TRUNCATE idempotency_log, idempotency_attempt")
    source_of(project).questions.clear()

    dagster.complete()

    assert source_of(project).days_asked == BOTH_NEWEST
    assert set(project.plan(project.catalogues[0]).missing.days()) == BOTH_NEWEST


def test_an_alert_is_raised_after_a_number_of_attempts_and_trying_goes_on(
    project: Project, dagster: Dagster, database: str
) -> None:
    dagster.complete()
    a_day_passes(database, failing=ALERT_ATTEMPTS - 2)
    before = [f.needs_a_person for f in project.failures(project.catalogues[0])]

    dagster.complete()
    failures = project.failures(project.catalogues[0])

    assert not any(before)
    assert all(failure.needs_a_person for failure in failures)
    assert {failure.attempts for failure in failures} == {ALERT_ATTEMPTS}
    assert all(f.retry_at - f.failed_at <= timedelta(hours=1) for f in failures)


def test_a_source_that_is_not_ready_waits_and_spends_no_attempt(
    project: Project, dagster: Dagster
) -> None:
    source_of(project).failing = set()
    source_of(project).not_ready = {DAY_3}

    dagster.complete()

    failures = project.failures(project.catalogues[0])
    assert {failure.partition.day for failure in failures} == {DAY_3}
    assert {failure.attempts for failure in failures} == {0}
    assert set(committed(project).days()) == {DAY_1, DAY_2, DAY_4, DAY_5}


def test_a_foreign_thing_at_one_target_keeps_nothing_else_from_being_committed(
    project: Project, dagster: Dagster, tmp_path: Path
) -> None:
    source_of(project).failing = set()
    target = tmp_path / "store/shops/article/sold/v1/2024-03-05/Lyon.parquet"
    target.mkdir(parents=True)

    dagster.complete()

    (failure,) = project.failures(project.catalogues[0])
    assert str(failure.partition) == "shops/article/sold/2024-03-05/Lyon"
    assert "is not ours to touch" in failure.error
    assert len(committed(project)) == EXPECTED - 1
    assert target.is_dir()
