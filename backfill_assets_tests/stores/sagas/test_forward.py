"""A saga that nothing goes wrong with, and what starting one promises."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import KeyReusedError, SagaArgumentsError, UnknownSagaError
from backfill_assets.core.sagas import SagaStatus
from backfill_assets_tests.stores.sagas.trip import ARGUMENTS, START, TIMEOUT, Clock, World, raising

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg


def test_every_step_is_done_once_and_its_receipt_is_kept(world: World) -> None:
    sagas = world.sagas()
    saga = sagas.run(world.start(sagas).saga_id)

    assert saga.status is SagaStatus.COMPLETED
    assert world.applied("trip/1") == {"seat", "room", "credit", "voucher"}
    receipts = {s["step"]: s["receipt"] for s in sagas.case_file("trip/1").facts()["steps"]}
    assert receipts["room"] == {"room": 7}
    assert world.execute("SELECT 1 FROM saga_lock") == []


def test_starting_runs_nothing_and_starting_again_changes_nothing(world: World) -> None:
    sagas = world.sagas()
    first = world.start(sagas)
    assert world.reached() == []

    assert world.start(sagas) == first
    sagas.run("trip/1")
    assert world.start(sagas).status is SagaStatus.COMPLETED
    assert [entry.event for entry in sagas.case_file("trip/1").journal] == ["started", "completed"]


def test_a_key_that_was_used_with_other_arguments_is_refused(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    with pytest.raises(KeyReusedError, match="saga trip/1 was started with other arguments"):
        world.start(sagas, seat={"flight": "UA2"})


def test_what_a_definition_cannot_use_is_refused_before_anything_is_stored(world: World) -> None:
    sagas = world.sagas()
    with pytest.raises(UnknownSagaError, match="'trop' is not defined; there is trip"):
        sagas.start("trop", "1", {}, who="ada")
    with pytest.raises(SagaArgumentsError, match="no arguments for room, credit, voucher"):
        sagas.start("trip", "1", {"seat": None}, who="ada")
    with pytest.raises(
        SagaArgumentsError, match=r"locks 'seat/\{flight\}', but its arguments have"
    ):
        sagas.start("trip", "1", ARGUMENTS | {"seat": {}}, who="ada")
    assert sagas.find() == []


def test_a_step_that_fails_for_a_while_is_tried_again_when_its_time_has_come(world: World) -> None:
    sagas = world.sagas()
    world.hooks["room.do.before"] = [raising(ConnectionError("the line is busy"))] * 2
    saga = sagas.run(world.start(sagas).saga_id)

    assert (saga.status, saga.due_at) == (SagaStatus.RUNNING, START + timedelta(seconds=1))
    assert sagas.run("trip/1") == saga  # it is not time yet
    world.clock.pass_by(seconds=1)
    saga = sagas.run("trip/1")
    assert saga.due_at == START + timedelta(seconds=3)  # twice as long
    world.clock.pass_by(seconds=2)
    assert sagas.run("trip/1").status is SagaStatus.COMPLETED
    assert world.reached().count("room.do.before") == 3
    assert world.effects()["booked"] == 1


def test_a_patient_call_waits_for_timers_by_itself(world: World) -> None:
    sagas = world.sagas()
    world.hooks["room.do.before"] = [raising(ConnectionError("the line is busy"))] * 2
    world.start(sagas)
    saga = sagas.run("trip/1", patience=timedelta(seconds=5))
    assert saga.status is SagaStatus.COMPLETED
    assert world.clock.now == START + timedelta(seconds=3)


def test_a_process_that_another_one_drives_is_left_alone(world: World) -> None:
    one, other = world.sagas("one"), world.sagas("other")
    world.start(one)
    seen = []

    def look() -> None:
        seen.append(other.run("trip/1"))
        other.close()  # this is a thread of the step's

    world.hooks["room.do.before"] = [look]
    assert one.run("trip/1").status is SagaStatus.COMPLETED
    ((owner, status),) = [(saga.owner, saga.status) for saga in seen]
    assert (owner, status) == ("one", SagaStatus.RUNNING)
    assert world.reached().count("room.do.before") == 1


def test_a_saga_that_moves_always_has_an_instant_at_which_anyone_may_take_it_up(
    world: World,
) -> None:
    one = world.sagas("one")
    world.start(one)
    due = []
    world.hooks["voucher.do.before"] = [lambda: due.append(one.get("trip/1").due_at)]
    one.run("trip/1")
    assert due == [START + TIMEOUT + timedelta(seconds=5)]


def test_an_interrupted_step_is_taken_up_by_another_process_under_the_same_key(
    world: World,
) -> None:
    """As a run that is terminated: the exception is none of the step's."""
    one, other = world.sagas("one"), world.sagas("other")
    world.start(one)
    world.hooks["voucher.do.after"] = [raising(KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt):
        one.run("trip/1")
    assert other.recover() == []  # nobody knows yet that its owner is gone
    world.clock.pass_by(seconds=26)
    (saga,) = other.recover()
    assert saga.status is SagaStatus.COMPLETED
    (trail,) = [t for t in other.case_file("trip/1").trails if t.state.operation == "voucher.do"]
    assert [a.outcome for a in trail.attempts] == ["UNKNOWN", "SUCCEEDED"]
    assert {a.generation for a in trail.attempts} == {1}  # and so the same key for the world


def test_a_worker_whose_clock_is_an_hour_fast_takes_over_early_and_does_nothing_twice(
    world: World,
) -> None:
    one = world.sagas("one")
    world.start(one)
    real = world.clock

    def rush() -> None:
        world.clock = Clock()
        world.clock.now = real.now + timedelta(hours=1)
        fast = world.sagas("fast")
        fast.recover(patience=timedelta(minutes=10))
        fast.close()
        world.clock = real

    world.hooks["voucher.do.after"] = [rush]
    one.run("trip/1")
    assert one.get("trip/1").status is SagaStatus.COMPLETED
    assert world.reached().count("voucher.do.after") == 2
    assert world.effects() == {"seats": 1, "miles": 1500, "booked": 1, "cancelled": 0}


def test_the_log_forgets_what_a_saga_did_with_the_saga_and_not_before(world: World) -> None:
    sagas, log = world.sagas(), world.log("pruning")
    world.start(sagas, key="old")
    sagas.run("trip/old")
    later = world.clock.now + timedelta(days=90)
    assert log.prune(later) == 0
    assert sagas.prune(world.clock.now) == []  # it ended at this very instant
    assert sagas.prune(later) == ["trip/old"]
    assert log.prune(later) == 4
    log.close()
    with pytest.raises(UnknownSagaError, match="there is no saga 'trip/old'"):
        sagas.cancel("trip/old", who="ada", why="too late")


def test_a_saga_that_is_open_is_never_forgotten(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    assert sagas.prune(world.clock.now + timedelta(days=90)) == []


def test_a_change_whose_answer_was_lost_is_known_for_ones_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece of work comes twice, as it does after the connection was cut at the commit."""
    sagas = world.sagas()
    sessions = sagas._store._sessions
    execute = sessions.execute
    times = [0]

    def twice(work: Callable[[psycopg.Connection], object]) -> object:
        times[0] += 1
        execute(work)
        return execute(work)

    monkeypatch.setattr(sessions, "execute", twice)
    world.start(sagas)
    assert sagas.run("trip/1").status is SagaStatus.COMPLETED
    sagas.cancel("trip/1", who="ada", why="ill")
    assert sagas.run("trip/1").status is SagaStatus.COMPENSATED
    assert times[0] > 20
    events = [entry.event for entry in sagas.case_file("trip/1").journal]
    assert events == ["started", "completed", "cancelled", "compensated"]
    assert world.effects() == {"seats": 2, "miles": 1000, "booked": 1, "cancelled": 1}
