"""A saga that nothing goes wrong with, and what starting one promises."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backfill_assets.core.errors import KeyReusedError, SagaArgumentsError, UnknownSagaError
from backfill_assets.core.sagas import SagaStatus
from backfill_assets_tests.stores.sagas.trip import ARGUMENTS, START, TIMEOUT, World, raising


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
