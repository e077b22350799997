"""Committed partitions made again: by a wish, or because their source has changed since."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from backfill_assets.core.cycles import Bounds
from backfill_assets.resources import operations
from backfill_assets.resources.run_requests import ON_COMMITTED_TAG, REPLACE_STALE

from .dagster_of_tests import Dagster
from .small_project import DAY_2, DAY_3, DAY_4, DAY_5, EXPECTED, SOLD, Shops, a_catalogue, a_project

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from backfill_assets.core.plan import Plan


@dataclass
class ChangingShops(Shops):
    """Shops whose days can change after they were read.

    Attributes:
        editions: How often each day has changed.
    """

    editions: dict[date, int] = field(default_factory=dict)

    def fingerprints(self, days: Sequence[date]) -> dict[date, str]:
        return {day: f"edition {self.editions.get(day, 0)}" for day in days}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def complete_shops(
    root: Path,
    instance: dg.DagsterInstance,
    bounds: Bounds | None = None,
    commit_protocol: str = "link",
    **catalogue: object,
) -> Dagster:
    """Return the shops, complete."""
    project = a_project(
        root,
        catalogue=a_catalogue(**catalogue),
        source=ChangingShops(),
        bounds=bounds,
        commit_protocol=commit_protocol,
    )
    dagster = Dagster(project, instance)
    dagster.complete()
    return dagster


def source_of(dagster: Dagster) -> ChangingShops:
    source = dagster.project.data_sets[0].source
    assert isinstance(source, ChangingShops)
    return source


def plan_of(dagster: Dagster) -> Plan:
    return dagster.project.plan(dagster.project.catalogues[0], looks_for_changes=True)


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*.parquet")}


class TestWishes:
    @pytest.mark.parametrize("protocol", ["link", "marker"])
    def test_a_wish_is_fulfilled_once_and_content_that_is_the_same_stays(
        self, tmp_path: Path, instance: dg.DagsterInstance, protocol: str
    ) -> None:
        root = tmp_path / "store"
        dagster = complete_shops(root, instance, commit_protocol=protocol)
        before = contents(root)
        outcome = operations.restate(dagster.project, "shops/article/sold/2024-03-03/*")
        source_of(dagster).questions.clear()

        requests = dagster.complete()

        assert len(outcome.changed) == 3
        assert [r.tags[ON_COMMITTED_TAG] for r in requests] == [REPLACE_STALE]
        assert source_of(dagster).questions == [("article", (DAY_3,))]
        assert contents(root) == before
        assert not plan_of(dagster).stale
        assert dagster.events(SOLD)[-1].metadata["state"].value == "unchanged"

    def test_other_content_replaces_the_old_one_and_nothing_else_changes(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        root = tmp_path / "store"
        dagster = complete_shops(root, instance)
        before = contents(root)
        source_of(dagster).factor = 7
        operations.restate(dagster.project, "shops/article/sold/2024-03-03/Lyon")

        dagster.complete()

        after = contents(root)
        changed = {name for name in before if before[name] != after[name]}
        assert changed == {"shops/article/sold/v1/2024-03-03/Lyon.parquet"}
        assert dagster.events(SOLD)[-1].metadata["state"].value == "committed"

    def test_a_wish_outlives_a_run_that_is_killed_before_it_publishes(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        dagster = complete_shops(tmp_path / "store", instance)
        operations.restate(dagster.project, "shops/article/*/2024-03-02/Paris")
        source_of(dagster).failing = {DAY_2}
        dagster.tick_and_run()  # it fails, and leaves everything as it stands

        assert len(plan_of(dagster).restating) == 2
        assert len(plan_of(dagster).committed) == EXPECTED

        source_of(dagster).failing = set()
        dagster.complete()
        assert not plan_of(dagster).restating

    def test_what_is_missing_goes_first_and_restating_is_bounded_and_newest_first(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        root = tmp_path / "store"
        dagster = complete_shops(root, instance, bounds=Bounds(max_days=1))
        operations.restate(dagster.project, "shops/article/sold/*/Paris")
        (root / "shops/article/revenue/v1/2024-03-04/Paris.parquet").unlink()

        requests = dagster.complete()

        days = [r.tags["dagster/asset_partition_range_start"][:10] for r in requests]
        again = [r.tags.get(ON_COMMITTED_TAG) == REPLACE_STALE for r in requests]
        assert again == [False, True, True, True, True, True]
        assert days == ["2024-03-04", *(f"2024-03-0{day}" for day in (5, 4, 3, 2, 1))]

    def test_an_ordinary_run_leaves_wishes_alone(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        dagster = complete_shops(tmp_path / "store", instance)
        operations.restate(dagster.project, "shops/article/sold/2024-03-03/Lyon")

        dagster.ask([SOLD], {"dagster/partition": "2024-03-03|Lyon"})

        assert [p.key for p in plan_of(dagster).restating] == ["2024-03-03|Lyon"]


class TestLateData:
    def test_a_day_that_changed_is_stale_and_is_made_again_with_its_new_content(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        root = tmp_path / "store"
        dagster = complete_shops(root, instance, look_back_days=3)
        before = contents(root)
        source = source_of(dagster)
        source.editions[DAY_4], source.factor = 1, 3

        stale = plan_of(dagster).stale
        dagster.complete()

        assert set(stale.days()) == {DAY_4}
        assert len(stale) == 12  # two categories, two value types, three shops
        changed = {n for n, content in contents(root).items() if content != before[n]}
        assert {name.split("/")[4] for name in changed} == {"2024-03-04"}
        assert not plan_of(dagster).stale

    @pytest.mark.parametrize("protocol", ["link", "marker"])
    def test_a_change_that_leaves_the_figures_as_they_were_is_reported_as_unchanged(
        self, tmp_path: Path, instance: dg.DagsterInstance, protocol: str
    ) -> None:
        dagster = complete_shops(
            tmp_path / "store", instance, look_back_days=3, commit_protocol=protocol
        )
        source_of(dagster).editions[DAY_5] = 1

        dagster.complete()

        assert dagster.events(SOLD)[-1].metadata["state"].value == "unchanged"
        assert not plan_of(dagster).stale

    def test_days_before_the_look_back_are_not_looked_at(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        dagster = complete_shops(tmp_path / "store", instance, look_back_days=2)
        source_of(dagster).editions[DAY_3] = 1

        assert not plan_of(dagster).stale
        assert dagster.complete() == []

    @pytest.mark.parametrize("protocol", ["link", "marker"])
    def test_a_damaged_file_hides_no_change_of_the_others(
        self, tmp_path: Path, instance: dg.DagsterInstance, protocol: str
    ) -> None:
        dagster = complete_shops(
            tmp_path / "store", instance, look_back_days=3, commit_protocol=protocol
        )
        damaged = dagster.project.catalogues[0].partition("article/sold", DAY_5, "Lyon")
        Path(dagster.project.store.location(damaged)).write_bytes(b"")
        source_of(dagster).editions[DAY_4] = 1

        assert set(plan_of(dagster).stale.days()) == {DAY_4}
        dagster.complete()

        assert not plan_of(dagster).stale

    def test_where_the_catalogue_does_not_restate_it_is_shown_and_left_alone(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        dagster = complete_shops(
            tmp_path / "store", instance, look_back_days=3, restates_changed=False
        )
        source_of(dagster).editions[DAY_5] = 1

        plan = plan_of(dagster)

        assert len(plan.stale) == 12
        assert not plan.restating
        assert dagster.complete() == []
        state, reason = plan.explain(next(iter(plan.stale)))
        assert (state, reason.split(":")[0]) == (
            "committed",
            "its file stands in the store; it is stale",
        )

    def test_a_source_without_fingerprints_is_never_asked(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        project = a_project(tmp_path / "store", catalogue=a_catalogue(look_back_days=3))
        dagster = Dagster(project, instance)

        dagster.complete()

        assert not plan_of(dagster).stale
