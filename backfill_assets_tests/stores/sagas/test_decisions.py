"""Sagas that wait for a person: what can be decided, by whom, and once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import (
    NotAppliedError,
    SagaArgumentsError,
    SagaStateError,
    SagaVersionError,
)
from backfill_assets.core.sagas import Choice, SagaStatus
from backfill_assets_tests.stores.sagas.trip import STEPS, World, raising

if TYPE_CHECKING:
    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets.stores.sagas.sagas import Sagas

LATE = timedelta(minutes=10)


def asking(world: World, sagas: Sagas) -> Saga:
    """Return a saga whose room is not to be had; nothing was undone."""
    world.start(sagas, "asking")
    world.hooks["room.do.before"] = [raising(NotAppliedError("the Ritz is full"))]
    saga = sagas.run("asking/1", patience=LATE)
    assert saga.status is SagaStatus.AWAITING_DECISION
    assert world.applied("asking/1") == {"seat", "credit"}
    return saga


def test_a_person_is_asked_once_and_the_choices_are_commands(world: World) -> None:
    sagas = world.sagas()
    saga = asking(world, sagas)
    ((key, subject, body),) = world.execute("SELECT dedup_key, subject, body FROM alert")
    assert key == f"saga:asking/1:{saga.version}"
    assert subject == (
        "Saga asking/1 waits for a decision: room.do: NotAppliedError: the Ritz is full"
    )
    assert set(body["commands"]) == {"retry", "replace", "accept", "compensate"}
    assert body["commands"]["replace"] == (
        f"backfill-assets saga decide asking/1 replace --version {saga.version}"
        " --step room --arguments 'JSON' --why 'WHY'"
    )
    assert [step["step"] for step in body["steps"]] == list(STEPS)
    assert sagas.recover() == []  # it waits, and nobody takes it up
    assert world.execute("SELECT 1 FROM saga_lock") == []  # and holds nothing


def test_it_is_tried_again_with_a_new_budget(world: World) -> None:
    sagas = world.sagas()
    saga = asking(world, sagas)
    world.hooks["room.do.before"] = [raising(ConnectionError("down"))] * 2
    sagas.decide("asking/1", saga.version, Choice.RETRY, who="ada", why="called them")
    assert sagas.run("asking/1", patience=LATE).status is SagaStatus.COMPLETED
    assert world.reached().count("room.do.before") == 4
    decided = sagas.case_file("asking/1").journal[2]
    assert (decided.event, decided.who, decided.why) == ("decided", "ada", "called them")
    assert decided.detail == {"choice": "retry", "step": None}


def test_a_person_chooses_another_hotel_and_the_rest_runs(world: World) -> None:
    sagas = world.sagas()
    saga = asking(world, sagas)
    sagas.decide(
        "asking/1",
        saga.version,
        Choice.REPLACE,
        who="ada",
        why="the Savoy has rooms",
        step="room",
        arguments={"hotel": "Savoy"},
    )
    assert sagas.run("asking/1", patience=LATE).status is SagaStatus.COMPLETED
    assert world.execute("SELECT key, hotel, state FROM partner") == [
        ("room@2.do:asking/1", "Savoy", "booked")
    ]
    assert world.reached().count("seat.do.before") == 1
    states = {s["step"]: s["do"] for s in sagas.case_file("asking/1").facts()["steps"]}
    assert states["room"] == "sealed"
    assert states["room@2"] == "done"
    sagas.cancel("asking/1", who="ada", why="ill")
    sagas.run("asking/1", patience=LATE)
    assert world.applied("asking/1") == set()


def test_what_is_replaced_while_in_doubt_is_undone_before_the_other_is_done(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas, "asking")
    world.hooks["room.do.after"] = [raising(TimeoutError("no answer"))] * 3  # it was booked
    saga = sagas.run("asking/1", patience=LATE)
    assert saga.status is SagaStatus.AWAITING_DECISION

    sagas.decide(
        "asking/1",
        saga.version,
        Choice.REPLACE,
        who="ada",
        why="they do not answer",
        step="room",
        arguments={"hotel": "Savoy"},
    )
    assert sagas.run("asking/1", patience=LATE).status is SagaStatus.COMPLETED
    assert world.execute("SELECT hotel, state FROM partner ORDER BY hotel") == [
        ("Ritz", "cancelled"),
        ("Savoy", "booked"),
    ]
    order = [p for p in world.reached() if p.startswith("room.")]
    assert order[-3:] == ["room.undo.after", "room.do.before", "room.do.after"]


def test_a_person_vouches_for_a_step_and_it_is_not_run(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas, "paid")
    world.hooks["charge.do.after"] = [raising(TimeoutError("no answer"))]
    saga = sagas.run("paid/1", patience=LATE)

    receipt = {"charged": True, "seen": "on the statement"}
    sagas.decide(
        "paid/1", saga.version, Choice.ACCEPT, who="ada", why="asked the bank", receipt=receipt
    )
    assert sagas.run("paid/1", patience=LATE).status is SagaStatus.COMPLETED
    assert world.reached().count("charge.do.before") == 1
    receipts = {s["step"]: s["receipt"] for s in sagas.case_file("paid/1").facts()["steps"]}
    assert receipts["charge"] == receipt


def test_a_person_vouches_that_it_did_not_happen_and_it_is_done_again(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas, "paid")
    world.hooks["charge.do.before"] = [raising(TimeoutError("no answer"))]
    saga = sagas.run("paid/1", patience=LATE)
    sagas.decide("paid/1", saga.version, Choice.RETRY, who="ada", why="the bank has nothing")
    assert sagas.run("paid/1", patience=LATE).status is SagaStatus.COMPLETED
    assert world.execute("SELECT saga FROM charge") == [("paid/1",)]


def test_an_undo_that_was_done_by_hand_is_accepted_and_the_rest_is_undone(world: World) -> None:
    sagas = world.sagas()
    saga = asking(world, sagas)
    world.execute("UPDATE seat SET meal = 'vegan' WHERE flight = 'UA1'")
    sagas.decide("asking/1", saga.version, Choice.COMPENSATE, who="ada", why="no hotel")
    saga = sagas.run("asking/1", patience=LATE)
    assert saga.status is SagaStatus.AWAITING_DECISION  # the seat was changed by somebody

    world.execute("UPDATE seat SET holder = NULL WHERE flight = 'UA1'")
    sagas.decide("asking/1", saga.version, Choice.ACCEPT, who="bob", why="gave it back myself")
    assert sagas.run("asking/1", patience=LATE).status is SagaStatus.COMPENSATED
    assert world.reached().count("seat.undo.before") == 1
    journal = [(e.event, e.who) for e in sagas.case_file("asking/1").journal]
    assert journal[-2:] == [("decided", "bob"), ("compensated", "the saga itself")]


def test_what_a_person_vouches_for_is_written_down_though_the_budget_is_spent(
    world: World,
) -> None:
    sagas = world.sagas()
    saga = asking(world, sagas)
    world.hooks["seat.undo.before"] = [raising(ConnectionError("down"))] * 3
    sagas.decide("asking/1", saga.version, Choice.COMPENSATE, who="ada", why="no hotel")
    saga = sagas.run("asking/1", patience=LATE)
    assert world.reached().count("seat.undo.before") == 3

    sagas.decide("asking/1", saga.version, Choice.ACCEPT, who="ada", why="called them")
    assert sagas.run("asking/1", patience=LATE).status is SagaStatus.COMPENSATED
    assert world.reached().count("seat.undo.before") == 3


def test_of_two_who_decide_at_once_one_is_accepted(world: World) -> None:
    ada, bob = world.sagas("ada"), world.sagas("bob")
    saga = asking(world, ada)
    ada.decide("asking/1", saga.version, Choice.RETRY, who="ada", why="")
    with pytest.raises(SagaStateError, match="asking/1 is RUNNING: there is nothing to decide"):
        bob.decide("asking/1", saga.version, Choice.COMPENSATE, who="bob", why="")

    world.hooks["room.do.before"] = [raising(NotAppliedError("still full"))]
    again = ada.run("asking/1", patience=LATE)
    with pytest.raises(SagaVersionError, match=f"is at version {again.version}, and"):
        bob.decide("asking/1", saga.version, Choice.COMPENSATE, who="bob", why="")
    assert [e.who for e in ada.case_file("asking/1").journal if e.event == "decided"] == ["ada"]


def test_two_decisions_in_one_moment_meet_at_the_version(world: World) -> None:
    """Both have looked at it; the second one writes after the first."""
    ada = world.sagas("ada")
    saga = asking(world, ada)
    bob = world.sagas("bob")
    looked = bob.get("asking/1")
    bob.get = lambda _: looked  # type: ignore[method-assign]
    store = bob._store
    bob_get = store.get
    store.get = lambda _: looked  # type: ignore[method-assign]
    ada.decide("asking/1", saga.version, Choice.RETRY, who="ada", why="")
    with pytest.raises(SagaVersionError, match="has moved on since version"):
        bob.decide("asking/1", saga.version, Choice.COMPENSATE, who="bob", why="")
    store.get = bob_get  # type: ignore[method-assign]
    assert bob.case_file("asking/1").states[0].do == "done"  # and it was not sealed


def test_a_decision_on_a_finished_saga_is_refused(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    saga = sagas.run("trip/1")
    with pytest.raises(SagaStateError, match="trip/1 is COMPLETED: there is nothing to decide"):
        sagas.decide("trip/1", saga.version, Choice.RETRY, who="ada", why="")


def test_what_is_no_choice_of_this_question_is_refused(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas, "paid")
    world.hooks["room.do.before"] = [raising(NotAppliedError("full"))]
    saga = sagas.run("paid/1", patience=LATE)
    with pytest.raises(SagaStateError, match="compensate is not possible; there is retry, replace"):
        sagas.decide("paid/1", saga.version, Choice.COMPENSATE, who="ada", why="")
    with pytest.raises(SagaArgumentsError, match="'seat' is not stuck; name one of room"):
        sagas.decide("paid/1", saga.version, Choice.REPLACE, who="ada", why="", step="seat")
    with pytest.raises(SagaArgumentsError, match="none is named; name one of room"):
        sagas.decide("paid/1", saga.version, Choice.REPLACE, who="ada", why="")
    assert sagas.get("paid/1") == saga


def test_what_changed_while_a_person_thought_is_met_as_a_failure_not_overwritten(
    world: World,
) -> None:
    """Locks are let go while it waits; the seat that it then wants is somebody else's."""
    sagas = world.sagas()
    world.start(sagas, "asking")
    world.hooks["seat.do.before"] = [raising(NotAppliedError("closed for now"))]
    saga = sagas.run("asking/1", patience=LATE)
    world.execute("UPDATE seat SET holder = 'somebody' WHERE flight = 'UA1'")
    sagas.decide("asking/1", saga.version, Choice.RETRY, who="ada", why="")
    saga = sagas.run("asking/1", patience=LATE)
    assert saga.status is SagaStatus.AWAITING_DECISION
    assert world.execute("SELECT holder FROM seat WHERE flight = 'UA1'") == [("somebody",)]
