"""Days are released by Dagster: the sensor asks, a run drives the sagas, a form takes one back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from backfill_assets.core.releases import ReleaseKey
from backfill_assets.defs.location import build_definitions
from backfill_assets.resources.operations import release as let_go
from backfill_assets.resources.release_desk import open_release_desk, with_releases
from backfill_assets.resources.release_tick import RELEASE_JOB
from backfill_assets.resources.run_requests import coverage_job_name, job_name
from backfill_assets.resources.saga_desk import open_saga_desk
from backfill_assets.stores.sagas.actions import SagaRegistry
from backfill_assets_tests.resources.dagster_of_tests import Dagster
from backfill_assets_tests.resources.release_world import KEY, World
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_2,
    DAY_3,
    DAY_4,
    DAY_5,
    SHOPS,
    SOLD,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets_tests.resources.release_world import Subscriber

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

RANGE = {
    "dagster/asset_partition_range_start": "2024-03-01|Paris",
    "dagster/asset_partition_range_end": "2024-03-05|Nice",
}


class Shops:
    """The project with its releases in Dagster, as it is bound for real."""

    def __init__(self, world: World, instance: dg.DagsterInstance) -> None:
        self.world = world
        self.instance = instance
        self.desk = open_release_desk(
            lambda: world.url, world.project.store, [SHOPS], clock=world.clock
        )
        self.sagas = open_saga_desk(
            lambda: world.url, with_releases(SagaRegistry(()), self.desk), clock=world.clock
        )
        world.project = replace(world.project, release_desk=self.desk, saga_desk=self.sagas)
        self.dagster = Dagster(world.project, instance)
        self.repository = build_definitions(world.project).get_repository_def()
        self.cursor: str | None = None

    def tick(self) -> Any:
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, repository_def=self.repository
        ) as context:
            found = self.repository.get_sensor_def("release_sensor").evaluate_tick(context)
        self.cursor = found.cursor
        return found

    def asked(self) -> list[str]:
        """Return the releases that one tick asks for."""
        return [
            key
            for request in self.tick().run_requests or ()
            for key in request.run_config["ops"]["release_each"]["config"]["releases"]
        ]

    def run(self, job: str, config: dict[str, Any]) -> dg.ExecuteInProcessResult:
        return self.repository.get_job(job).execute_in_process(
            instance=self.instance, run_config={"ops": config}, raise_on_error=False
        )

    def release(self, *keys: str) -> dg.ExecuteInProcessResult:
        return self.run(RELEASE_JOB, {"release_each": {"config": {"releases": list(keys)}}})

    def check(self) -> dg.AssetCheckEvaluation:
        job = self.repository.get_job(coverage_job_name(SHOPS))
        result = job.execute_in_process(instance=self.instance, raise_on_error=False)
        found = {c.check_name: c for c in result.get_asset_check_evaluations()}
        return found["log_agrees_with_files"]

    def close(self) -> None:
        self.sagas.sagas.close()
        self.desk.actions.rows.close()
        self.desk.log.close()


@pytest.fixture
def shops(world: World, instance: dg.DagsterInstance) -> Iterator[Shops]:
    made = Shops(world, instance)
    yield made
    made.close()


def test_the_definitions_load_whole_beside_all_others(shops: Shops) -> None:
    """Dagster looks at all of them together only when a process loads them for real."""
    names = {job.name for job in shops.repository.get_all_jobs()}
    assert {"release_days", "retract_day", "release_partitions"} <= names


def test_nothing_is_released_while_partitions_are_missing_and_can_be_made(shops: Shops) -> None:
    shops.world.fill(DAY_1, DAY_3, DAY_5)
    found = shops.tick()
    assert not found.run_requests
    assert found.skip_message == "18 missing partitions go first."


def test_nothing_is_released_while_a_run_over_partitions_is_unfinished(shops: Shops) -> None:
    shops.world.fill()
    run = shops.dagster.unfinished(
        dg.DagsterRunStatus.STARTED, [SOLD], RANGE, job=job_name(SHOPS, SHOPS.first_day)
    )
    found = shops.tick()
    assert not found.run_requests
    assert "Runs over partitions have not ended" in found.skip_message
    shops.instance.report_run_failed(run)
    assert len(shops.asked()) == 5


def test_complete_days_are_released_newest_first_and_then_all_is_quiet(shops: Shops) -> None:
    shops.world.fill()
    keys = shops.asked()
    assert keys == [f"shops/2024-03-0{day}" for day in (5, 4, 3, 2, 1)]

    assert shops.release(*keys).success

    assert {day for (day,) in shops.world.execute("SELECT day FROM published_day")} == {
        DAY_1,
        DAY_2,
        DAY_3,
        DAY_4,
        DAY_5,
    }
    found = shops.tick()
    assert not found.run_requests
    assert found.skip_message == "Every complete day is released, waits, or is held."
    assert shops.check().passed


def test_a_day_that_waits_for_a_failing_partition_keeps_no_other_from_being_released(
    shops: Shops,
) -> None:
    """What backs off, here because a person cancelled it, is no work that goes first."""
    shops.world.fill(DAY_1, DAY_2, DAY_4, DAY_5)
    shops.world.clock.now = datetime.now(UTC)
    tags = {
        "dagster/asset_partition_range_start": "2024-03-03|Paris",
        "dagster/asset_partition_range_end": "2024-03-03|Nice",
    }
    assert shops.tick().skip_message == "12 missing partitions go first."
    for grid in SHOPS.grids:
        job = job_name(SHOPS, grid.first_day)
        queued = dg.DagsterRunStatus.QUEUED
        run = shops.dagster.unfinished(queued, grid.queries, tags, job=job)
        shops.instance.report_run_canceled(run)
    assert shops.asked() == [f"shops/2024-03-0{day}" for day in (5, 4, 2, 1)]


def test_a_run_that_is_killed_is_not_waited_for_for_ever(shops: Shops) -> None:
    shops.world.fill()
    tags = {"backfill_assets/releases": "shops"}
    shops.world.clock.now = datetime.now(UTC)
    old = timedelta(minutes=5)
    run = shops.dagster.unfinished(
        dg.DagsterRunStatus.STARTED, [], tags, job=RELEASE_JOB, started=old
    )
    assert len(shops.asked()) == 5
    assert shops.instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE
    alive = shops.dagster.unfinished(dg.DagsterRunStatus.STARTED, [], tags, job=RELEASE_JOB)
    assert shops.tick().skip_message == f"Run {alive.run_id} releases days."


def test_a_release_that_is_refused_keeps_no_other_from_being_made(shops: Shops) -> None:
    shops.world.fill(DAY_1)
    result = shops.release("shops/2024-03-02", "nonsense", "tills/2024-03-01", "shops/2024-03-01")
    assert result.success
    (output,) = [e for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    stands = output.event_specific_data.metadata["releases"].value
    assert stands["shops/2024-03-01"] == "COMPLETED"
    assert "is not complete: 0 of 6" in stands["shops/2024-03-02"]
    assert "no release is called so" in stands["nonsense"]
    assert "there is no catalogue 'tills'" in stands["tills/2024-03-01"]


def test_a_day_is_retracted_by_a_form_and_refused_in_a_sentence(shops: Shops) -> None:
    shops.world.fill()
    shops.release("shops/2024-03-01")
    form = {"catalogue": "shops", "day": "2024-03-01", "who": "eve", "reason": "wrong"}

    assert shops.run("retract_day", {"retract": {"config": form}}).success
    assert (shops.world.rows(), shops.world.held()) == ([], 4)
    assert [key for key in shops.asked() if "2024-03-01" in key] == []

    again = shops.run("retract_day", {"retract": {"config": form}})
    assert not again.success
    (failure,) = again.get_step_failure_events()
    message = str(failure.event_specific_data.error.message)
    assert "shops 2024-03-01 is not released, and no release of it is on its way" in message
    nonsense = shops.run("retract_day", {"retract": {"config": form | {"day": "yesterday"}}})
    assert not nonsense.success


def test_a_day_whose_rounds_keep_failing_is_held_by_the_sensor_and_let_go_by_a_person(
    shops: Shops,
) -> None:
    shops.world.fill()
    damaged = shops.world.root / "shops/article/sold/v1/2024-03-01/Paris.parquet"
    damaged.write_bytes(b"PAR1 no more")
    rounds = []
    for _ in range(10):
        keys = shops.asked()
        rounds += [key for key in keys if "2024-03-01" in key]
        if keys:
            shops.release(*keys)
        shops.world.clock.pass_by(minutes=2)

    assert rounds == ["shops/2024-03-01", "shops/2024-03-01/2", "shops/2024-03-01/3"]
    assert shops.world.held() == 4
    assert len(shops.world.execute("SELECT 1 FROM published_day")) == 4
    assert len(shops.world.execute("SELECT 1 FROM alert")) == 1

    let_go(shops.world.project, "shops/*/*/2024-03-01/*")
    shops.world.fill()
    assert shops.asked() == ["shops/2024-03-01/4"]


def test_files_that_were_made_again_are_released_anew_within_ten_minutes(shops: Shops) -> None:
    shops.world.fill()
    shops.release(*shops.asked())
    shops.tick()
    shops.world.make_again(DAY_2, factor=2)
    assert shops.asked() == []  # it has looked a moment ago
    assert not shops.check().passed
    shops.world.clock.pass_by(minutes=10)
    assert shops.asked() == ["shops/2024-03-02/2"]
    assert shops.release("shops/2024-03-02/2").success
    assert shops.check().passed


def test_a_subscriber_that_is_down_ends_the_run_after_a_few_days(
    shops: Shops, subscriber: Subscriber
) -> None:
    shops.world.fill()
    subscriber.refusing = 100
    desk = replace(shops.desk, subscribers=(subscriber.url,))
    shops.world.project = replace(shops.world.project, release_desk=desk)
    shops.repository = build_definitions(shops.world.project).get_repository_def()
    shops.release(*shops.asked())
    assert len(subscriber.heard) == 3
    assert shops.asked() == ["shops/2024-03-02", "shops/2024-03-01"]


def test_the_check_names_what_differs(shops: Shops) -> None:
    shops.world.fill()
    shops.release(str(KEY), str(ReleaseKey("shops", DAY_2)))
    shops.world.execute("DELETE FROM published_partition WHERE unit = 'Lyon' AND day = %s", DAY_1)
    check = shops.check()
    assert not check.passed
    assert check.description == "2 file without rows"
    assert check.metadata["file without rows"].value == (
        "* shops/article/revenue/2024-03-01/Lyon\n* shops/article/sold/2024-03-01/Lyon"
    )
