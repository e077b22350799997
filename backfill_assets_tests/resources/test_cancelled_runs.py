"""What a person cancelled is not launched again in the next breath, and is not lost either."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from backfill_assets.resources.cancelled_runs import PAUSE, STOPPED_TAG, paused_partitions

from .dagster_of_tests import Dagster, a_range
from .small_project import SHOPS, SOLD, a_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVERYTHING = a_range("2024-03-01|Paris", "2024-03-05|Nice")


@pytest.fixture
def dagster(tmp_path: Path) -> Iterator[Dagster]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Dagster(a_project(tmp_path / "store"), instance)


def cancel(dagster: Dagster, **more_tags: str) -> None:
    """Cancel a run over everything that one asset expects."""
    run = dagster.unfinished(dg.DagsterRunStatus.QUEUED, [SOLD], EVERYTHING | more_tags)
    dagster.instance.report_run_canceled(run)


def days_asked_of_sold(dagster: Dagster) -> list[str]:
    """Return the newest day of every requested run that has the cancelled run's asset."""
    key = dg.AssetKey(list(SOLD.asset_path))
    asked = [r for _ in range(2) for r in dagster.asks() if key in (r.asset_selection or ())]
    return [r.tags["dagster/asset_partition_range_end"][:10] for r in asked]


def test_what_a_person_cancelled_is_not_launched_in_the_next_ticks(dagster: Dagster) -> None:
    cancel(dagster)

    assert days_asked_of_sold(dagster) == []


def test_it_is_taken_up_again_after_the_pause(dagster: Dagster) -> None:
    cancel(dagster)
    now = datetime.now(UTC)

    assert len(paused_partitions(dagster.instance, SHOPS, now)) == 15
    assert not paused_partitions(dagster.instance, SHOPS, now + PAUSE)


def test_the_tick_says_why_nothing_is_launched(dagster: Dagster) -> None:
    dagster.complete()
    (dagster.project.store.root / "shops/article/sold/v1/2024-03-02/Lyon.parquet").unlink()
    cancel(dagster)

    reason = dagster.settled()

    assert reason == (
        "1 missing partitions are of runs that were cancelled less than 10 minutes ago; hold them "
        "to stop them for good."
    )


def test_a_run_that_ended_with_the_project_is_taken_up_at_once(dagster: Dagster) -> None:
    cancel(dagster, **{STOPPED_TAG: "true"})

    assert days_asked_of_sold(dagster)[0] == "2024-03-05"
