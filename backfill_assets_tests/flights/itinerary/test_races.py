"""Many who want the same last seat, in processes that are stopped and killed."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.operations import Outcome
from backfill_assets.core.sagas import SagaStatus
from backfill_assets_tests.flights.itinerary.endings import LATE, SAGA, check_rest
from backfill_assets_tests.flights.itinerary.journeys import STEPS, World
from backfill_assets_tests.stores.children import Gate, child
from backfill_assets_tests.stores.sagas.trip import Clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

RIVALS = 4
LAST_SEAT = "UPDATE itinerary.flight SET seats = 1 WHERE flight = 'UA303'"


class RunningClock(Clock):
    """A clock that goes as fast as the wall's: rivals wait for each other's real work."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()

    def __call__(self) -> datetime:
        return self.now + timedelta(seconds=time.monotonic() - self._began)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def driving(world: World, saga_id: str, gate: Gate | None = None) -> Callable[[], SagaStatus]:
    """Return what a process does that drives a saga to its end."""

    def drive() -> SagaStatus:
        if gate is not None:
            gate.wait()
        sagas = world.sagas(f"process {os.getpid()}")
        status = sagas.run(saga_id, patience=LATE).status
        sagas.close()
        return status

    return drive


def test_of_rivals_for_the_last_seat_one_gets_it_and_the_others_keep_nothing(world: World) -> None:
    sagas = world.sagas()
    names = [world.start(sagas, str(number)).saga_id for number in range(RIVALS)]
    sagas.close()
    world.execute(LAST_SEAT)
    world.clock = RunningClock()
    gate = Gate()
    with ExitStack() as stack:
        rivals = [stack.enter_context(child(driving(world, name, gate))) for name in names]
        gate.open()
        for rival in rivals:
            rival.answer()
    world.clock = Clock()
    world.clock.pass_by(minutes=30)
    sagas = world.sagas()
    sagas.recover(patience=LATE)  # whoever had to wait for a lock

    ends = sorted(sagas.get(name).status for name in names)
    assert ends == [SagaStatus.COMPENSATED] * (RIVALS - 1) + [SagaStatus.COMPLETED]
    (winner,) = [name for name in names if sagas.get(name).status is SagaStatus.COMPLETED]
    assert world.applied(winner) == set(STEPS)
    assert all(world.applied(name) == set() for name in names if name != winner)
    world.check_books()


def test_who_waits_for_a_person_holds_no_lock_and_loses_no_seat(world: World) -> None:
    world.execute(LAST_SEAT)
    world.spoil("first_hotel")
    sagas = world.sagas()
    world.start(sagas)
    assert sagas.run(SAGA, patience=LATE).status is SagaStatus.AWAITING_DECISION

    world.start(sagas, "2")
    assert sagas.run("book_itinerary/2", patience=LATE).status is SagaStatus.COMPENSATED
    check_rest(world, sagas)
    assert "first_flight" in world.applied(SAGA)


def test_a_lock_outlives_a_killed_owner_by_less_than_a_minute(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    sagas.close()
    world.hooks["first_flight.do.before"] = [die]
    with child(driving(world, SAGA)) as doomed:
        assert doomed.exit_code() == -signal.SIGKILL
    world.hooks.clear()
    assert world.execute("SELECT count(*) FROM saga_lock WHERE saga_id = %s", SAGA) == [(5,)]

    began = world.clock.now
    world.start(sagas, "2")
    assert sagas.run("book_itinerary/2", patience=LATE).status is SagaStatus.COMPLETED
    assert world.clock.now - began < timedelta(minutes=1)


@pytest.mark.parametrize("step", STEPS)
def test_a_stopped_process_that_wakes_up_after_the_undo_changes_nothing(
    world: World, step: str
) -> None:
    sagas = world.sagas()
    world.start(sagas)
    sagas.close()
    world.hooks[f"{step}.do.before"] = [stop]
    with child(driving(world, SAGA)) as sleeper:
        sleeper.wait_until_stopped()
        world.hooks.clear()
        world.clock.pass_by(minutes=2)
        sagas.cancel(SAGA, who="eve", why="it hangs")
        assert sagas.run(SAGA, patience=LATE).status is SagaStatus.COMPENSATED
        money = world.money()
        sleeper.go_on()
        assert sleeper.answer() is SagaStatus.COMPENSATED

    check_rest(world, sagas)
    assert world.money() == money


def test_a_partner_that_is_stopped_answers_late_and_has_booked_once(world: World) -> None:
    """Its process sleeps through the first attempts; what it finds when it wakes up is one stay."""
    world.answer_seconds = 0.2
    sagas = world.sagas()
    world.start(sagas)
    world.partner.process.stop()
    attempts = 0

    def wake_up() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            world.partner.process.go_on()

    world.hooks["second_hotel.do.before"] = [wake_up] * 5

    assert sagas.run(SAGA, patience=LATE).status is SagaStatus.COMPLETED
    assert attempts >= 3
    check_rest(world, sagas)
    assert world.execute_at_partner("SELECT count(*) FROM hotels.stay") == [(1,)]


def test_a_partner_that_is_down_for_a_moment_is_asked_again(world: World) -> None:
    """Nothing listens there: nothing was sent, and that is no refusal."""
    answering, world.partner.url = world.partner.url, "http://127.0.0.1:1"
    sagas = world.sagas()
    world.start(sagas)

    def come_back() -> None:
        world.partner.url = answering

    world.hooks["second_hotel.do.before"] = [int, int, come_back]

    assert sagas.run(SAGA, patience=LATE).status is SagaStatus.COMPLETED
    trails = {trail.state.operation: trail for trail in sagas.case_file(SAGA).trails}
    assert [str(a.outcome) for a in trails["second_hotel.do"].attempts] == [
        Outcome.FAILED,
        Outcome.FAILED,
        Outcome.SUCCEEDED,
    ]


def test_a_partner_that_is_down_keeps_no_seat(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    assert sagas.run(SAGA, patience=LATE).status is SagaStatus.COMPLETED
    world.partner.process.kill()
    sagas.cancel(SAGA, who="ada", why="changed her mind")

    assert sagas.run(SAGA, patience=LATE).status is SagaStatus.AWAITING_DECISION
    check_rest(world, sagas)
    assert world.applied(SAGA) == {"second_hotel"}
    assert world.reached["second_hotel.undo.before"] == 10  # its budget: it is not given up early


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
