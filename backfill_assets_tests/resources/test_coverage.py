"""How complete a catalogue is, counted from the files: by query, unit and day, and how long yet."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.coverage import Coverage
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.coverage_report import (
    calendar_png,
    duration,
    facts,
    markdown,
    percent,
)

from .small_project import DAY_1, DAY_2, DAY_3, DAY_5, EXPECTED, a_project, fill

if TYPE_CHECKING:
    from pathlib import Path


def test_a_complete_store_has_no_hole_and_nothing_left(tmp_path: Path) -> None:
    project = a_project(tmp_path / "store")
    fill(project)
    plan = project.plan(project.catalogues[0])

    known = facts(Coverage(plan), (), project.seconds_left(plan))

    assert known["completeness"] == 1
    assert (known["complete_until"], known["oldest_hole"]) == ("2024-03-05", None)
    assert known["time_left"] == "0 s"
    assert (known["next_day"], known["next_day_closes_at"]) == (
        "2024-03-06",
        "2024-03-07T00:00:00+00:00",
    )


def test_holes_are_counted_by_query_unit_and_day(tmp_path: Path) -> None:
    project = a_project(tmp_path / "store")
    fill(project)
    root = project.store.root  # type: ignore[attr-defined]
    (root / "shops/article/sold/v1/2024-03-03/Lyon.parquet").unlink()
    (root / "shops/hour/revenue/v1/2024-03-05/Paris.parquet").unlink()

    coverage = Coverage(project.plan(project.catalogues[0]))

    assert (coverage.total.expected, coverage.total.missing) == (EXPECTED, 2)
    assert {n: c.missing for n, c in coverage.by_query().items() if c.missing} == {
        "article/sold": 1,
        "hour/revenue": 1,
    }
    assert {n: c.missing for n, c in coverage.by_unit().items()} == {
        "Paris": 1,
        "Lyon": 1,
        "Nice": 0,
    }
    days = coverage.by_day()
    assert next(iter(days)) == DAY_5
    assert days[DAY_3].expected - days[DAY_3].committed == 1
    assert (coverage.oldest_hole, coverage.complete_until) == (DAY_3, DAY_2)


def test_an_empty_store_is_complete_up_to_no_day(tmp_path: Path) -> None:
    project = a_project(tmp_path / "store")
    plan = project.plan(project.catalogues[0])
    coverage = Coverage(plan)

    assert (coverage.complete_until, coverage.oldest_hole) == (None, DAY_1)
    assert coverage.total.completeness == 0
    assert project.seconds_left(plan) is None


def test_the_time_left_goes_by_what_was_committed_lately(tmp_path: Path) -> None:
    project = a_project(tmp_path / "store")
    fill(project, days=[DAY_5])  # twelve partitions, of which three are a minute old
    catalogue = project.catalogues[0]
    plan = project.plan(catalogue)
    now = RealClock().now()
    for number, partition in enumerate(plan.committed):
        age = timedelta(seconds=60) if number < 3 else timedelta(hours=5)
        moment = (now - age).timestamp()
        os.utime(project.store.location(partition), (moment, moment))

    rate = project.store.commit_rate(plan.committed, now)

    assert rate == pytest.approx(3 / 60, rel=0.01)
    assert project.store.commit_rate(plan.committed, datetime(2100, 1, 1, tzinfo=UTC)) == 0


def test_a_table_has_a_row_for_each_name(tmp_path: Path) -> None:
    coverage = Coverage(
        a_project(tmp_path / "store").plan(a_project(tmp_path / "store").catalogues[0])
    )

    lines = markdown(coverage.by_unit(), "unit").splitlines()

    assert lines[0].startswith("| unit | expected | committed | missing |")
    assert lines[2] == "| Paris | 16 | 0 | 16 | 0 | 0 | 0 | 0 | 0.00% |"
    assert len(lines) == 2 + 3


def test_a_calendar_is_a_picture_whatever_the_days(tmp_path: Path) -> None:
    project = a_project(tmp_path / "store")
    coverage = Coverage(project.plan(project.catalogues[0]))

    assert calendar_png(coverage.by_day()).startswith(b"\x89PNG")
    assert calendar_png({}).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min 00 s"), (3_599, "59 min 59 s"), (7_260, "2 h 01 min")],
)
def test_a_duration_is_told_in_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_hundred_per_cent_is_only_what_is_whole() -> None:
    assert percent(1_000_463, 1_000_464) == "99.99%"
    assert percent(1_000_464, 1_000_464) == "100.00%"
    assert percent(57, 100) == "57.00%"
    assert percent(0, 0) == "100.00%"  # nothing is expected, and nothing is missing
