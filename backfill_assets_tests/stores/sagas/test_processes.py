"""Real processes: killed at any statement, or stopped until the others went on without them."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from backfill_assets.core.operations import Outcome
from backfill_assets.core.sagas import Choice, OnFailure, SagaStatus
from backfill_assets_tests.stores.children import child
from backfill_assets_tests.stores.sagas.trip import STEPS, TRIP, World, raising

if TYPE_CHECKING:
    from collections.abc import Callable

LATE = timedelta(minutes=10)
SEAT, ROOM, CREDIT, VOUCHER = TRIP.steps
# One after the other, so that it is known what else was going on when a process ended.
ROW = replace(
    TRIP,
    steps=(
        SEAT,
        CREDIT,
        replace(ROOM, after=("credit",)),
        replace(VOUCHER, after=("room",)),
    ),
)


@pytest.fixture
def row(world: World) -> World:
    world.definitions = (ROW,)
    return world


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def driving(world: World, saga_id: str, prepare: Callable[[], object]) -> Callable[[], object]:
    """Return what a child does: come up, prepare its fault, and drive a saga."""

    def drive() -> object:
        sagas = world.sagas(f"child {os.getpid()}")
        prepare()
        status = sagas.run(saga_id).status
        sagas.close()
        return status

    return drive


def dying_at(number: int, *, is_done: bool) -> Callable[[], object]:
    """Return what has this process killed before, or after, its n-th SQL statement."""

    def prepare() -> None:
        execute: Any = psycopg.Cursor.execute
        left = [number]

        def counted(cursor: Any, *args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] < 0 and not is_done:
                die()
            answer = execute(cursor, *args, **kwargs)
            if left[0] < 0:
                die()
            return answer

        psycopg.Cursor.execute = counted  # type: ignore[method-assign]

    return prepare


def outcomes(world: World, operation: str, saga_id: str) -> list[Outcome]:
    rows = world.execute(
        "SELECT outcome FROM idempotency_attempt WHERE operation_name = %s"
        " AND idempotency_key = %s ORDER BY attempt",
        operation,
        saga_id,
    )
    return [Outcome(outcome) for (outcome,) in rows]


@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
def test_killed_at_any_statement_another_process_brings_it_to_its_end(
    row: World, *, is_back: bool
) -> None:
    """Every undo is effective once, whatever statement was the last of the one before."""
    sagas = row.sagas()
    deaths = 0
    for number in range(0, 1_000, 4):  # a fourth of them, before and after it by turns
        saga_id = row.start(sagas, "trip", f"{number:03}").saga_id
        before = row.effects()
        if is_back:
            sagas.run(saga_id)
            sagas.cancel(saga_id, who="ada", why="")
        prepare = dying_at(number + deaths % 4, is_done=deaths % 2 == 1)
        with child(driving(row, saga_id, prepare)) as running:
            code = running.exit_code()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        deaths += 1
        row.clock.pass_by(minutes=1)
        sagas.recover(patience=LATE)
        if not is_back:
            assert sagas.get(saga_id).status is SagaStatus.COMPLETED
            assert row.applied(saga_id) == set(STEPS)
            sagas.cancel(saga_id, who="ada", why="")
            sagas.run(saga_id, patience=LATE)
        assert sagas.get(saga_id).status is SagaStatus.COMPENSATED
        assert row.applied(saga_id) == set()
        after = row.effects()
        changes = {name: after[name] - before[name] for name in after}
        assert changes == {"seats": 2, "miles": 0, "booked": 1, "cancelled": 1}
    assert deaths > 10


@pytest.mark.parametrize("point", ["seat.do.after", "credit.do.after"])
def test_a_transaction_that_was_stopped_and_wakes_after_the_end_changes_nothing(
    row: World, point: str
) -> None:
    sagas = row.sagas()
    row.start(sagas)
    row.hooks[point] = [stop]
    with child(driving(row, "trip/1", lambda: None)) as running:
        running.wait_until_stopped()
        row.clock.pass_by(minutes=1)
        sagas.cancel("trip/1", who="ada", why="it hangs")
        assert sagas.run("trip/1", patience=LATE).status is SagaStatus.COMPENSATED
        running.go_on()
        running.answer()
    operation = point.removesuffix(".after")
    assert outcomes(row, operation, "trip/1") == [Outcome.FENCED]
    assert row.reached().count(point) == 1
    assert row.applied("trip/1") == set()


@pytest.mark.parametrize("step", ["room", "voucher"])
@pytest.mark.parametrize("point", ["before", "after"])
def test_a_step_that_was_stopped_and_wakes_after_its_undo_leaves_nothing(
    row: World, step: str, point: str
) -> None:
    sagas = row.sagas()
    row.start(sagas)
    row.hooks[f"{step}.do.{point}"] = [stop]
    with child(driving(row, "trip/1", lambda: None)) as running:
        running.wait_until_stopped()
        row.clock.pass_by(minutes=1)
        row.hooks[f"{step}.do.before"] = [raising(ConnectionError("down"))] * 2
        assert sagas.recover(patience=LATE)[0].status is SagaStatus.COMPENSATED
        running.go_on()
        running.answer()
    # Two more attempts were made and failed; the first came back late, with or without a success.
    assert len(outcomes(row, f"{step}.do", "trip/1")) == 3
    assert outcomes(row, f"{step}.do", "trip/1")[0] is Outcome.FENCED
    assert row.applied("trip/1") == set()


@pytest.mark.parametrize("step", ["room", "voucher"])
@pytest.mark.parametrize("point", ["before", "after"])
def test_an_undo_that_was_stopped_and_wakes_when_it_was_done_by_another_changes_nothing(
    row: World, step: str, point: str
) -> None:
    sagas = row.sagas()
    row.start(sagas)
    sagas.run("trip/1")
    sagas.cancel("trip/1", who="ada", why="")
    row.hooks[f"{step}.undo.{point}"] = [stop]
    with child(driving(row, "trip/1", lambda: None)) as running:
        running.wait_until_stopped()
        row.clock.pass_by(minutes=1)
        row.hooks.clear()
        assert sagas.recover(patience=LATE)[0].status is SagaStatus.COMPENSATED
        running.go_on()
        assert running.answer() is SagaStatus.COMPENSATED
    assert outcomes(row, f"{step}.undo", "trip/1") == [Outcome.FENCED, Outcome.SUCCEEDED]
    assert row.effects() == {"seats": 2, "miles": 1000, "booked": 1, "cancelled": 1}


def test_a_stopped_driver_that_nobody_replaced_may_go_on(row: World) -> None:
    sagas = row.sagas()
    row.start(sagas)
    row.hooks["room.do.after"] = [stop]
    with child(driving(row, "trip/1", lambda: None)) as running:
        running.wait_until_stopped()
        row.clock.pass_by(minutes=1)
        running.go_on()
        assert running.answer() is SagaStatus.COMPLETED
    assert outcomes(row, "room.do", "trip/1") == [Outcome.SUCCEEDED]


def test_triggers_at_the_same_time_start_and_do_everything_once(world: World) -> None:
    def trigger() -> SagaStatus:
        own = world.sagas(f"child {os.getpid()}")
        status = own.run(world.start(own).saga_id).status
        own.close()
        return status

    with child(trigger) as one, child(trigger) as two, child(trigger) as three:
        for running in (one, two, three):
            running.answer()
    sagas = world.sagas()
    assert sagas.get("trip/1").status is SagaStatus.COMPLETED
    assert [e.event for e in sagas.case_file("trip/1").journal] == ["started", "completed"]
    assert world.effects() == {"seats": 1, "miles": 1500, "booked": 1, "cancelled": 0}
    assert world.reached().count("room.do.before") == 1


def test_two_compensators_at_the_same_time_undo_everything_once(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    sagas.run("trip/1")
    sagas.cancel("trip/1", who="ada", why="")

    def compensate() -> SagaStatus:
        own = world.sagas(f"child {os.getpid()}")
        status = own.run("trip/1").status
        own.close()
        return status

    with child(compensate) as one, child(compensate) as two, child(compensate) as three:
        ends = [running.answer() for running in (one, two, three)]
    assert SagaStatus.COMPENSATED in ends
    assert world.effects() == {"seats": 2, "miles": 1000, "booked": 1, "cancelled": 1}
    assert world.reached().count("room.undo.before") == 1


def test_a_person_and_the_supervisor_together_have_one_winner(world: World) -> None:
    """Both act in the same moment, again and again; the journal tells of one decision each time."""
    world.definitions = (replace(TRIP, steps=(SEAT,)),)
    sagas = world.sagas()
    for number in range(8):
        saga_id = world.start(sagas, "trip", str(number)).saga_id
        version = sagas.get(saga_id).version

        def cancel(saga_id: str = saga_id) -> str:
            own = world.sagas("person")
            try:
                own.cancel(saga_id, who="ada", why="")
            finally:
                own.close()
            return "cancelled"

        with child(driving(world, saga_id, lambda: None)) as drives, child(cancel) as cancels:
            drives.answer()
            cancels.answer()
        assert sagas.get(saga_id).version > version
        world.clock.pass_by(minutes=1)
        sagas.recover(patience=LATE)
        assert sagas.get(saga_id).status is SagaStatus.COMPENSATED
        events = [e.event for e in sagas.case_file(saga_id).journal]
        assert events.count("cancelled") == 1
        assert world.applied(saga_id) == set()


def test_a_decision_dies_with_its_process_or_stands_whole(row: World) -> None:
    """Killed at each statement of a decision: the saga waits as before, or has moved on."""
    row.definitions = (replace(ROW, on_failure=OnFailure.ASK),)
    sagas = row.sagas()
    stood = set()
    for number in range(0, 40, 2):
        saga_id = row.start(sagas, "trip", str(number)).saga_id
        row.hooks["room.do.before"] = [raising(ConnectionError("down"))] * 3
        saga = sagas.run(saga_id, patience=LATE)
        assert saga.status is SagaStatus.AWAITING_DECISION

        def decide(saga_id: str = saga_id, version: int = saga.version, at: int = number) -> None:
            own = world_sagas()
            dying_at(at, is_done=True)()
            own.decide(saga_id, version, Choice.COMPENSATE, who="ada", why="")
            own.close()

        def world_sagas() -> Any:
            return row.sagas(f"child {os.getpid()}")

        with child(decide) as running:
            code = running.exit_code()
        now = sagas.get(saga_id)
        journal = [e.event for e in sagas.case_file(saga_id).journal]
        sealed = row.execute(
            "SELECT 1 FROM idempotency_log WHERE idempotency_key = %s AND sealed_at IS NOT NULL",
            saga_id,
        )
        is_decided = now.status is not SagaStatus.AWAITING_DECISION
        assert ("decided" in journal, len(sealed)) == ((True, 4) if is_decided else (False, 0))
        stood.add(is_decided)
        if not is_decided:
            sagas.decide(saga_id, now.version, Choice.COMPENSATE, who="bob", why="")
        sagas.run(saga_id, patience=LATE)
        assert row.applied(saga_id) == set()
        if code == 0:
            break
    assert stood == {False, True}
