"""Backfills as people launch them from Dagster's pages: what is reported is what is committed.

The daemon's own code cuts them into runs; the runs are executed in this process.
"""

# ruff: noqa: TID251 - runs the backfills of Dagster's daemon, which it does not export

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon import get_default_daemon_logger
from dagster._daemon.backfill import execute_backfill_iteration

from backfill_assets.resources.run_requests import asset_key
from backfill_assets_tests.resources.dagster_of_tests import Dagster
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    NOW,
    REVENUE,
    REVENUE_BY_HOUR,
    SHOPS,
    SOLD,
    SOLD_BY_HOUR,
    a_catalogue,
    a_project,
    committed,
    fill,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from backfill_assets.core.partitions import Query

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    # Dagster's own backfill code calls what Dagster has deprecated.
    pytest.mark.filterwarnings("ignore:Function `AssetSelection.sources`:DeprecationWarning"),
]

CODE_LOCATION = """
from datetime import date, datetime
from pathlib import Path
from backfill_assets.defs.location import build_definitions
from backfill_assets_tests.resources.small_project import a_catalogue, a_project

catalogue = a_catalogue(last_day=date.fromisoformat({last_day!r}))
now = datetime.fromisoformat({now!r})
defs = build_definitions(a_project(Path({root!r}), catalogue=catalogue, now=now))
"""
PASSES = 12  # of the daemon; each ends at most one run of each asset, and a stall takes two
UNITS = ["Paris", "Lyon", "Nice"]


class Backfills:
    """A code location on a store, and the daemon that runs its backfills."""

    def __init__(
        self,
        root: Path,
        instance: dg.DagsterInstance,
        folder: Path,
        *,
        now: datetime = NOW,
        last_day: date = date(2024, 3, 10),
    ) -> None:
        catalogue = a_catalogue(last_day=last_day)
        self.dagster = Dagster(a_project(root, catalogue=catalogue, now=now), instance)
        code = CODE_LOCATION.format(
            root=str(root), now=now.isoformat(), last_day=last_day.isoformat()
        )
        # A name of its own: Dagster keeps loaded modules for the life of the process.
        self._file = folder / f"location_{folder.name}.py"
        self._file.write_text(code)

    def run(self, queries: Sequence[Query], keys: Iterable[str] | None) -> PartitionBackfill:
        """Launch a backfill over some keys or all, and pass over it until it ends."""
        instance = self.dagster.instance
        origin = InProcessCodeLocationOrigin(
            LoadableTargetOrigin(python_file=str(self._file), attribute="defs"),
            location_name="shops",
        )
        target = InProcessWorkspaceLoadTarget(origin)
        with create_test_daemon_workspace_context(target, instance) as workspace:
            backfill = PartitionBackfill.from_asset_partitions(
                asset_graph=workspace.create_request_context().asset_graph,
                backfill_id="of_a_person",
                tags={},
                backfill_timestamp=datetime(2026, 1, 1, tzinfo=UTC).timestamp(),
                asset_selection=[asset_key(query) for query in queries],
                partition_names=None if keys is None else list(keys),
                dynamic_partitions_store=instance,
                all_partitions=keys is None,
                title=None,
                description=None,
                run_config=None,
            )
            instance.add_backfill(backfill)
            logger = get_default_daemon_logger("BackfillDaemon")
            for _ in range(PASSES):
                list(execute_backfill_iteration(workspace, logger))
                found = instance.get_backfill("of_a_person")
                assert found is not None
                if found.status is not BulkActionStatus.REQUESTED:
                    return found
        return found

    def told(self, query: Query) -> list[str]:
        """Return the keys that were reported, with one entry for each event."""
        return sorted(str(event.partition) for event in self.dagster.events(query))

    def committed(self, query: Query) -> list[str]:
        return sorted(p.key for p in committed(self.dagster.project).only([query]))


@pytest.fixture
def backfills(root: Path, instance: dg.DagsterInstance, tmp_path: Path) -> Backfills:
    return Backfills(root, instance, tmp_path)


def keys(first: int, last: int, units: Iterable[str] = UNITS) -> list[str]:
    """Return the keys of days of March × units, both ends inclusive."""
    days = range(first, last + 1)
    return [f"2024-03-{day:02}|{unit}" for day, unit in itertools.product(days, units)]


def test_every_closed_day_and_unit_of_an_asset_is_committed_and_reported_once(
    backfills: Backfills,
) -> None:
    ended = backfills.run([SOLD], keys(1, 5))
    assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
    assert backfills.told(SOLD) == sorted(keys(1, 5))
    assert backfills.committed(SOLD) == sorted(set(keys(1, 5)) - {"2024-03-01|Nice"})


def test_all_assets_of_a_grid_at_once_share_their_runs(backfills: Backfills) -> None:
    ended = backfills.run([SOLD, REVENUE], keys(2, 5))
    assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
    for query in (SOLD, REVENUE):
        assert backfills.told(query) == backfills.committed(query) == sorted(keys(2, 5))
    assert backfills.dagster.instance.get_runs_count() == 3  # one for each unit


def test_all_assets_of_all_grids_over_all_days_at_once(
    root: Path, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    backfills = Backfills(root, instance, tmp_path, now=datetime(2024, 4, 1, tzinfo=UTC))
    ended = backfills.run(SHOPS.queries, None)
    assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
    for query in (SOLD, REVENUE):
        assert backfills.told(query) == sorted(keys(1, 10))
        assert backfills.committed(query) == sorted(set(keys(1, 10)) - {"2024-03-01|Nice"})
    for query in (SOLD_BY_HOUR, REVENUE_BY_HOUR):
        assert backfills.told(query) == backfills.committed(query) == sorted(keys(3, 10))


def test_a_year_of_all_units_is_a_run_for_each_unit_and_reported_as_committed(
    root: Path, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    last_day, now = date(2025, 2, 28), datetime(2025, 4, 1, tzinfo=UTC)
    backfills = Backfills(root, instance, tmp_path, now=now, last_day=last_day)
    days = [day.isoformat() for day in a_catalogue(last_day=last_day).days(DAY_1, last_day)]
    ended = backfills.run([SOLD], [f"{day}|{unit}" for day in days for unit in UNITS])
    assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
    assert instance.get_runs_count() == 3
    assert len(backfills.told(SOLD)) == 3 * 365
    assert backfills.committed(SOLD) == sorted(set(backfills.told(SOLD)) - {"2024-03-01|Nice"})


def test_an_l_shape_is_committed_and_nothing_around_it(backfills: Backfills) -> None:
    l_shape = [*keys(1, 5, ["Paris"]), *keys(5, 5, ["Lyon", "Nice"])]
    ended = backfills.run([SOLD], l_shape)
    assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
    assert backfills.told(SOLD) == backfills.committed(SOLD) == sorted(l_shape)


def test_units_that_are_no_neighbours_do_not_sweep_in_the_one_between(
    backfills: Backfills,
) -> None:
    apart = keys(2, 4, ["Paris", "Nice"])
    ended = backfills.run([SOLD], apart)
    assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
    assert backfills.told(SOLD) == backfills.committed(SOLD) == sorted(apart)


def test_of_days_of_which_one_is_open_the_others_are_committed_and_the_backfill_fails(
    backfills: Backfills,
) -> None:
    ended = backfills.run([SOLD], keys(4, 6, ["Paris", "Lyon"]))  # a run for each unit
    assert ended.status is BulkActionStatus.COMPLETED_FAILED
    closed = sorted(keys(4, 5, ["Paris", "Lyon"]))
    assert backfills.told(SOLD) == backfills.committed(SOLD) == closed
    runs = backfills.dagster.instance.get_runs()
    assert {run.status for run in runs} == {dg.DagsterRunStatus.FAILURE}


def test_what_stood_committed_is_reported_again_and_the_backfill_succeeds(
    backfills: Backfills,
) -> None:
    fill(backfills.dagster.project)
    ended = backfills.run([SOLD], keys(4, 5))
    assert ended.status is BulkActionStatus.COMPLETED_SUCCESS
    assert backfills.told(SOLD) == sorted(keys(4, 5))
