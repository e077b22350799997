"""Sagas in Dagster: what its sensors launch, what its forms do, and what is shown."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from backfill_assets.core.errors import NotAppliedError
from backfill_assets.core.sagas import SagaStatus
from backfill_assets.defs.sagas import saga_definitions
from backfill_assets.resources.saga_desk import SagaDesk
from backfill_assets.stores.sagas.alerts import AlertDelivery
from backfill_assets_tests.stores.sagas.trip import World, prepare, raising

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from backfill_assets.stores.log.alerts import Alert

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")


@pytest.fixture
def world(clone_database: Callable[..., str], tmp_path: Path) -> Iterator[World]:
    made = World(clone_database("sagas", prepare), tmp_path)
    yield made
    for sagas in made.opened:
        sagas.close()


class Inbox:
    name = "inbox"

    def __init__(self) -> None:
        self.came: list[str] = []

    def deliver(self, alert: Alert) -> None:
        self.came.append(alert.subject)


class Shown:
    """The definitions of a world's sagas, and an instance without a server."""

    def __init__(self, world: World, instance: dg.DagsterInstance) -> None:
        self.inbox = Inbox()
        delivery = AlertDelivery(lambda: world.url, [self.inbox], worker="one", clock=world.clock)
        self.desk = SagaDesk(world.sagas("one"), delivery, world.clock)
        made = saga_definitions(self.desk, 10)
        self.definitions = dg.Definitions(
            assets=made.assets,
            asset_checks=made.checks,
            jobs=made.jobs,
            sensors=made.sensors,
            executor=dg.in_process_executor,
        )
        self.instance = instance

    def run(self, job: str, op: str = "", **config: Any) -> dg.ExecuteInProcessResult:
        run_config = {"ops": {op: {"config": config}}} if op else None
        return self.definitions.resolve_job_def(job).execute_in_process(
            run_config=run_config, instance=self.instance, raise_on_error=False
        )

    def tick(self, sensor: str, cursor: str | None = None) -> Any:
        definition = self.definitions.resolve_sensor_def(sensor)
        with dg.build_sensor_context(instance=self.instance, cursor=cursor) as context:
            return definition.evaluate_tick(context)

    def launched(self, tick: Any) -> list[tuple[str | None, Any]]:
        return [
            (r.job_name, r.run_config.get("ops", {}).get("drive", {}).get("config"))
            for r in tick.run_requests
        ]


@pytest.fixture
def shown(world: World) -> Iterator[Shown]:
    with dg.DagsterInstance.ephemeral() as instance:
        made = Shown(world, instance)
        yield made
        made.desk.delivery.close()


def waiting(world: World, shown: Shown) -> int:
    """Have a saga wait for a person; return its version."""
    world.start(shown.desk.sagas, "asking")
    world.hooks["room.do.before"] = [raising(NotAppliedError("the Ritz is full"))]
    return shown.desk.drive("asking/1").version


def test_the_sensor_launches_a_run_for_each_saga_that_nobody_drives(
    world: World, shown: Shown
) -> None:
    assert shown.tick("saga_supervising_sensor").run_requests == []
    world.start(shown.desk.sagas, key="1")
    world.start(shown.desk.sagas, key="2")
    tick = shown.tick("saga_supervising_sensor")
    assert shown.launched(tick) == [
        ("run_saga", {"saga": "trip/1"}),
        ("run_saga", {"saga": "trip/2"}),
    ]
    # Four steps of 20 s, done and undone, with the waits; what hangs longer was replaced long ago.
    assert [r.tags["dagster/max_runtime"] for r in tick.run_requests] == ["340", "340"]
    assert shown.run("run_saga", "drive", saga="trip/1").success
    assert shown.desk.sagas.get("trip/1").status is SagaStatus.COMPLETED
    assert shown.launched(shown.tick("saga_supervising_sensor")) == [
        ("run_saga", {"saga": "trip/2"})
    ]


def test_a_saga_whose_owner_died_is_fenced_and_launched_again_and_again_until_it_is_taken_up(
    world: World, shown: Shown
) -> None:
    """It dies inside of a step: killed, it would write nothing either."""
    world.start(shown.desk.sagas)
    dead = world.sagas("dead")
    log = dead._driver.log
    log.fail_many = lambda *_, **__: {}  # type: ignore[method-assign]
    world.hooks["seat.do.before"] = [raising(KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt):
        dead.run("trip/1")
    assert shown.tick("saga_supervising_sensor").run_requests == []  # its lease still runs

    world.clock.pass_by(seconds=26)
    first = shown.tick("saga_supervising_sensor")
    ((outcome,),) = world.execute("SELECT outcome FROM idempotency_attempt")
    assert outcome == "UNKNOWN"
    again = shown.tick("saga_supervising_sensor")
    assert [r.run_key for r in first.run_requests] == [r.run_key for r in again.run_requests]
    world.clock.pass_by(minutes=2)  # that run never began
    later = shown.tick("saga_supervising_sensor")
    assert later.run_requests[0].run_key != first.run_requests[0].run_key


def test_a_saga_that_waits_is_decided_by_a_form_and_goes_on(world: World, shown: Shown) -> None:
    version = waiting(world, shown)
    result = shown.run(
        "decide_saga",
        "decide",
        saga="asking/1",
        version=version,
        choice="replace",
        who="ada",
        why="the Savoy has rooms",
        step="room",
        arguments='{"hotel": "Savoy"}',
    )
    assert result.success
    assert shown.desk.sagas.get("asking/1").status is SagaStatus.COMPLETED
    assert world.execute("SELECT hotel FROM partner") == [("Savoy",)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 1}, "is at version"),
        ({"who": " "}, "say who: the journal of a saga has nothing else to go by"),
        ({"choice": "replace", "step": "room", "arguments": "{"}, "arguments '{' is no JSON"),
        ({"saga": "asking/2"}, "there is no saga 'asking/2'"),
    ],
)
def test_a_decision_that_is_refused_is_told_in_a_sentence(
    world: World, shown: Shown, changes: dict[str, Any], said: str
) -> None:
    version = waiting(world, shown)
    form = {"saga": "asking/1", "version": version, "choice": "retry", "who": "ada", "why": "it"}
    result = shown.run("decide_saga", "decide", **form | changes)
    assert not result.success
    (failure,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    assert said in str(failure.step_failure_data.user_failure_data)
    assert shown.desk.sagas.get("asking/1").version == version


def test_a_saga_is_cancelled_by_a_form(world: World, shown: Shown) -> None:
    world.start(shown.desk.sagas)
    shown.desk.drive("trip/1")
    assert shown.run("cancel_saga", "cancel", saga="trip/1", who="ada", why="ill").success
    assert shown.desk.sagas.get("trip/1").status is SagaStatus.COMPENSATED
    assert world.applied("trip/1") == set()


def test_the_page_of_the_sagas_shows_the_case_and_its_check_fails_while_one_waits(
    world: World, shown: Shown
) -> None:
    version = waiting(world, shown)
    tick = shown.tick("saga_supervising_sensor")
    assert shown.launched(tick) == [("look_at_sagas", None)]
    same = shown.tick("saga_supervising_sensor", cursor=tick.cursor)
    assert same.run_requests == []  # nothing new waits

    result = shown.run("look_at_sagas")
    (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == ("no_stuck_saga", False)
    (event,) = result.asset_materializations_for_node("sagas")
    case = str(event.metadata["case asking/1"].value)
    assert "**room.do: NotAppliedError: the Ritz is full**" in case
    assert "Still applied: seat: applied; credit: applied" in case
    assert f"saga decide asking/1 retry --version {version} --why 'WHY'" in case

    shown.desk.cancel("asking/1", who="ada", why="ill")
    shown.desk.drive("asking/1")
    (check,) = shown.run("look_at_sagas").get_asset_check_evaluations()
    assert check.passed
    after = shown.tick("saga_supervising_sensor", cursor=tick.cursor)
    assert shown.launched(after) == [("look_at_sagas", None)]


def test_what_nobody_takes_up_is_stuck_too(world: World, shown: Shown) -> None:
    world.start(shown.desk.sagas)
    assert shown.desk.stuck_sagas()["not taken up"] == []
    world.clock.now += timedelta(minutes=11)
    (told,) = shown.desk.stuck_sagas()["not taken up"]
    assert told.startswith("trip/1: due since 2013-08-03 12:00:00+00:00")


def test_alerts_are_delivered_by_a_sensor(world: World, shown: Shown) -> None:
    waiting(world, shown)
    shown.tick("alert_delivering_sensor")
    shown.tick("alert_delivering_sensor")
    assert shown.inbox.came == [
        "Saga asking/1 waits for a decision: room.do: NotAppliedError: the Ritz is full"
    ]
