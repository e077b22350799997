"""What a failure leaves: nothing, or a question that says exactly what is left."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import (
    NotAppliedError,
    SagaStateError,
    TryAgainError,
    UnreadableSagaError,
)
from backfill_assets.core.operations import Outcome
from backfill_assets.core.sagas import Choice, OnFailure, SagaStatus
from backfill_assets_tests.stores.sagas.trip import STEPS, TIMEOUT, TRIP, World, raising

if TYPE_CHECKING:
    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets.stores.sagas.sagas import Sagas

LATE = timedelta(minutes=10)  # enough for every wait of a saga


def outcomes(sagas: Sagas, operation: str, saga_id: str = "trip/1") -> list[Outcome]:
    trails = {trail.state.operation: trail for trail in sagas.case_file(saga_id).trails}
    return [attempt.outcome for attempt in trails[operation].attempts]


def run_to_rest(sagas: Sagas, saga_id: str = "trip/1") -> Saga:
    return sagas.run(saga_id, patience=LATE)


@pytest.mark.parametrize("step", STEPS)
def test_a_definite_failure_at_any_step_leaves_the_world_clean(world: World, step: str) -> None:
    sagas = world.sagas()
    world.start(sagas)
    world.hooks[f"{step}.do.before"] = [raising(NotAppliedError("no"))]

    assert run_to_rest(sagas).status is SagaStatus.COMPENSATED
    assert world.reached().count(f"{step}.do.before") == 1  # it was not tried again
    assert outcomes(sagas, f"{step}.do") == [Outcome.FAILED]
    assert world.applied("trip/1") == set()
    assert world.effects()["miles"] == 1000
    assert world.execute("SELECT 1 FROM saga_lock") == []
    assert world.execute("SELECT 1 FROM alert") == []  # nobody needs to do anything


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("point", ["before", "after"])
def test_a_step_that_times_out_for_good_is_undone_whether_it_happened_or_not(
    world: World, step: str, point: str
) -> None:
    sagas = world.sagas()
    world.start(sagas)
    world.hooks[f"{step}.do.{point}"] = [raising(TimeoutError("no answer"))] * 3

    assert run_to_rest(sagas).status is SagaStatus.COMPENSATED
    expected = Outcome.FAILED if step in ("seat", "credit") else Outcome.UNKNOWN
    assert outcomes(sagas, f"{step}.do") == [expected] * 3
    is_undone = f"{step}.undo.after" in world.reached()
    assert is_undone == (expected is Outcome.UNKNOWN)  # unknown is undone, rolled back is not
    assert world.applied("trip/1") == set()
    assert world.effects()["miles"] == 1000


@pytest.mark.parametrize("step", STEPS)
def test_what_arrives_after_its_undo_is_refused(world: World, step: str) -> None:
    """It hangs at its first attempt until everything is over, and only then acts."""
    late, other = world.sagas("late"), world.sagas("other")
    world.start(late)
    seen: list[SagaStatus] = []

    def hang() -> None:
        world.clock.pass_by(seconds=30)  # past the deadline, and past the saga's lease
        other.cancel("trip/1", who="eve", why="it hangs")
        seen.append(run_to_rest(other).status)
        other.close()

    world.hooks[f"{step}.do.before"] = [hang]
    late.run("trip/1")

    assert seen == [SagaStatus.COMPENSATED]
    assert late.get("trip/1").status is SagaStatus.COMPENSATED
    assert world.applied("trip/1") == set()
    assert outcomes(late, f"{step}.do") == [Outcome.FENCED]
    assert world.effects()["miles"] == 1000


def test_a_deadline_is_kept_by_others_and_the_late_return_is_fenced(world: World) -> None:
    late, other = world.sagas("late"), world.sagas("other")
    world.start(late)
    seen: list[object] = []

    def hang() -> None:
        world.clock.pass_by(seconds=10)
        seen.append(other.recover())  # within its time it is believed
        world.clock.pass_by(seconds=20)
        seen.extend(other.fence())
        seen.extend(saga.status for saga in other.recover(patience=LATE))
        other.close()

    world.hooks["voucher.do.before"] = [hang]
    late.run("trip/1")
    assert seen == [[], ("trip/1", "voucher.do"), SagaStatus.COMPLETED]
    assert outcomes(late, "voucher.do") == [Outcome.FENCED, Outcome.SUCCEEDED]
    assert world.effects() == {"seats": 1, "miles": 1500, "booked": 1, "cancelled": 0}


def test_a_step_that_always_hangs_is_fenced_tried_again_and_then_undone(world: World) -> None:
    """Every attempt outlives its time; nobody who hangs is needed to get the saga to its end."""
    workers = [world.sagas(f"worker {number}") for number in range(5)]
    world.start(workers[0])
    ends: list[SagaStatus] = []

    def hang() -> None:
        world.clock.pass_by(minutes=1)
        successor = workers[len([p for p in world.reached() if p == "voucher.do.before"])]
        ends.extend(saga.status for saga in successor.recover(patience=LATE))
        successor.close()

    world.hooks["voucher.do.before"] = [hang] * 3
    workers[0].run("trip/1")
    assert ends[0] is SagaStatus.COMPENSATED
    assert world.reached().count("voucher.do.before") == 3  # the budget, and no more
    assert outcomes(workers[0], "voucher.do") == [Outcome.FENCED] * 3
    assert world.applied("trip/1") == set()


def test_every_do_and_every_undo_twice_gives_the_same_world(world: World) -> None:
    """Each reply is lost once, after the effect; a transaction rolls back, the others repeat."""
    sagas = world.sagas()
    world.start(sagas)
    for step in STEPS:
        for direction in ("do", "undo"):
            world.hooks[f"{step}.{direction}.after"] = [raising(TimeoutError("lost"))]
    assert run_to_rest(sagas).status is SagaStatus.COMPLETED
    assert world.applied("trip/1") == set(STEPS)
    assert world.effects() == {"seats": 1, "miles": 1500, "booked": 1, "cancelled": 0}

    sagas.cancel("trip/1", who="ada", why="changed her mind")
    assert run_to_rest(sagas).status is SagaStatus.COMPENSATED
    twice = [p for p in world.reached() if p.endswith(".after")]
    assert sorted(twice) == sorted(2 * [f"{s}.{d}.after" for s in STEPS for d in ("do", "undo")])
    assert world.applied("trip/1") == set()
    assert world.effects() == {"seats": 2, "miles": 1000, "booked": 1, "cancelled": 1}


def test_a_completed_saga_is_cancelled_once_however_often_it_is_asked(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    sagas.run("trip/1")
    sagas.cancel("trip/1", who="ada", why="first")
    sagas.cancel("trip/1", who="bob", why="second")
    run_to_rest(sagas)
    assert sagas.cancel("trip/1", who="cem", why="third").status is SagaStatus.COMPENSATED
    journal = [(e.event, e.who) for e in sagas.case_file("trip/1").journal]
    assert journal[2:] == [("cancelled", "ada"), ("compensated", "the saga itself")]
    assert world.effects()["cancelled"] == 1


def test_dependents_are_undone_first_and_independent_steps_overlap(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    sagas.run("trip/1")
    sagas.cancel("trip/1", who="ada", why="")
    both = threading.Barrier(2, timeout=30)  # passed only by two at the same time
    world.hooks["room.undo.before"] = [both.wait]
    world.hooks["credit.undo.before"] = [both.wait]
    run_to_rest(sagas)
    order = [p for p in world.reached() if ".undo." in p]
    assert order[:2] == ["voucher.undo.before", "voucher.undo.after"]
    assert sorted(order[2:4]) == ["credit.undo.before", "room.undo.before"]
    assert order[-2:] == ["seat.undo.before", "seat.undo.after"]


def test_the_most_sensitive_store_is_undone_first(world: World) -> None:
    steps = {step.name: step for step in TRIP.steps}
    changed = replace(
        TRIP,
        steps=(
            replace(steps["seat"], undo_order=-1),  # although the others came after it
            replace(steps["room"], undo_order=1),  # after its sibling
            steps["credit"],
            steps["voucher"],
        ),
    )
    world.definitions = (changed,)
    sagas = world.sagas()
    world.start(sagas)
    sagas.run("trip/1")
    sagas.cancel("trip/1", who="ada", why="")
    run_to_rest(sagas)
    order = [p for p in world.reached() if p.endswith(".undo.after")]
    assert order == [f"{s}.undo.after" for s in ("seat", "voucher", "credit", "room")]


def test_an_undo_that_fails_for_a_while_is_tried_again_on_its_own_budget(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    world.hooks["voucher.do.before"] = [raising(NotAppliedError("no"))]
    world.hooks["room.undo.before"] = [raising(ConnectionError("down"))] * 2
    assert run_to_rest(sagas).status is SagaStatus.COMPENSATED
    assert world.reached().count("room.undo.before") == 3
    assert world.applied("trip/1") == set()


def test_an_undo_that_fails_for_good_asks_and_stops_only_what_stands_behind_it(
    world: World,
) -> None:
    sagas = world.sagas()
    world.start(sagas)
    world.hooks["voucher.do.before"] = [raising(NotAppliedError("no"))]
    world.hooks["room.undo.before"] = [raising(ConnectionError("the hotel is closed"))] * 3

    saga = run_to_rest(sagas)
    assert saga.status is SagaStatus.AWAITING_DECISION
    # The credit was taken back; the seat is not given back while the room may still need it.
    assert world.applied("trip/1") == {"seat", "room"}
    ((body,),) = world.execute("SELECT body FROM alert")
    assert body["still_applied"] == ["seat: applied", "room: applied"]
    assert body["stuck"] == ["room.undo"]
    assert "the hotel is closed" in body["question"]
    assert body["commands"] == {
        "retry": f"backfill-assets saga decide trip/1 retry --version {saga.version} --why 'WHY'",
        "accept": f"backfill-assets saga decide trip/1 accept --version {saga.version} --why 'WHY'",
    }
    with pytest.raises(SagaStateError, match="is being undone, and waits"):
        sagas.cancel("trip/1", who="ada", why="")


def test_an_undo_that_is_missing_after_a_deployment_asks_and_goes_on_when_it_is_back(
    world: World,
) -> None:
    sagas = world.sagas()
    world.start(sagas)
    sagas.run("trip/1")
    sagas.cancel("trip/1", who="ada", why="")

    deployed = world.sagas("deployed", registry=world.registry(without="undo_room"))
    saga = run_to_rest(deployed)
    assert saga.status is SagaStatus.AWAITING_DECISION
    assert saga.question is not None
    assert "'undo_room' is not registered in this deployment" in saga.question.reason
    assert world.applied("trip/1") == {"seat", "room"}
    assert "room.undo.before" not in world.reached()

    facts = deployed.case_file("trip/1").facts()
    assert facts["definition_changes"] == ["trip is not defined any more"]
    sagas.decide("trip/1", saga.version, Choice.RETRY, who="ada", why="it is back")
    assert run_to_rest(sagas).status is SagaStatus.COMPENSATED
    assert world.applied("trip/1") == set()


def test_a_saga_goes_by_the_definition_it_was_started_with(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    world.hooks["room.do.before"] = [raising(TryAgainError("busy"))]
    sagas.run("trip/1")

    first, *rest = TRIP.steps
    world.definitions = (replace(TRIP, steps=(replace(first, timeout=2 * TIMEOUT), *rest[:-1])),)
    changed = world.sagas("changed")
    facts = changed.case_file("trip/1").facts()
    assert facts["definition_changes"] == [
        "step seat: timeout_seconds was 20.0, is 40.0",
        "step voucher is not in it any more",
    ]
    assert run_to_rest(changed).status is SagaStatus.COMPLETED
    assert world.applied("trip/1") == set(STEPS)  # the voucher too


def test_a_failure_at_the_first_step_is_over_at_once_and_never_picked_up_again(
    world: World,
) -> None:
    sagas = world.sagas()
    world.start(sagas)
    world.hooks["seat.do.before"] = [raising(NotAppliedError("full"))]
    assert sagas.run("trip/1").status is SagaStatus.COMPENSATED
    world.clock.pass_by(days=1)
    assert sagas.recover() == []
    assert [p for p in world.reached() if ".undo." in p] == []


def test_a_saga_that_cannot_be_driven_does_not_stop_the_others_and_asks_in_the_end(
    world: World,
) -> None:
    sagas = world.sagas()
    world.start(sagas, key="bad")
    world.clock.pass_by(seconds=1)
    world.start(sagas, key="good")
    world.execute("UPDATE saga SET plan = '{}' WHERE key = 'bad'")

    assert [s.status for s in sagas.recover()] == [SagaStatus.RUNNING, SagaStatus.COMPLETED]
    for _ in range(4):
        world.clock.pass_by(minutes=10)
        sagas.recover()
    bad = sagas.get("trip/bad")
    assert bad.status is SagaStatus.AWAITING_DECISION
    ((subject,),) = world.execute("SELECT subject FROM alert")
    assert subject == (
        "Saga trip/bad waits for a decision: driving it broke off 5 times: UnreadableSagaError: "
        "saga trip/bad: its plan cannot be read (KeyError: 'definition'); deploy the program that "
        "wrote it, and retry"
    )
    with pytest.raises(UnreadableSagaError, match="deploy the program that wrote it"):
        sagas.decide("trip/bad", bad.version, Choice.RETRY, who="ada", why="")
    with pytest.raises(UnreadableSagaError, match="deploy the program that wrote it"):
        sagas.case_file("trip/bad")


def test_what_somebody_else_changed_is_left_alone_and_both_versions_are_shown(
    world: World,
) -> None:
    sagas = world.sagas()
    world.start(sagas)
    sagas.run("trip/1")
    world.execute("UPDATE seat SET meal = 'vegan' WHERE flight = 'UA1'")
    sagas.cancel("trip/1", who="ada", why="")

    saga = run_to_rest(sagas)
    assert saga.status is SagaStatus.AWAITING_DECISION
    assert world.execute("SELECT holder, meal FROM seat WHERE flight = 'UA1'") == [
        ("trip/1", "vegan")
    ]
    assert saga.question is not None
    assert '{"found": ["trip/1", "vegan"], "wrote": ["trip/1", "fish"]}' in saga.question.reason
    assert world.reached().count("seat.undo.before") == 1  # a conflict is not tried again


def test_an_undo_of_a_delta_takes_back_its_own_delta_only(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas)
    sagas.run("trip/1")
    world.execute("UPDATE account SET miles = miles + 30")
    sagas.cancel("trip/1", who="ada", why="")
    world.hooks["credit.undo.before"] = [
        lambda: world.execute("UPDATE account SET miles = miles + 4")
    ]
    run_to_rest(sagas)
    assert world.effects()["miles"] == 1034


def test_after_an_irreversible_step_it_goes_forward_or_asks_and_never_back(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas, "paid")
    world.hooks["room.do.before"] = [raising(ConnectionError("down"))] * 3
    saga = run_to_rest(sagas, "paid/1")

    assert world.reached().count("room.do.before") == 3
    assert saga.status is SagaStatus.AWAITING_DECISION
    assert saga.question is not None
    assert saga.question.choices == ("retry", "replace", "accept")
    with pytest.raises(SagaStateError, match="charge is irreversible, and has happened"):
        sagas.cancel("paid/1", who="ada", why="")
    assert [p for p in world.reached() if ".undo." in p] == []
    assert world.applied("paid/1") == {"seat"}


def test_an_irreversible_step_in_doubt_is_not_repeated_and_not_undone(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas, "paid")
    world.hooks["charge.do.after"] = [raising(TimeoutError("no answer"))]
    saga = run_to_rest(sagas, "paid/1")
    assert saga.status is SagaStatus.AWAITING_DECISION
    assert world.reached().count("charge.do.before") == 1
    assert saga.question is not None
    assert saga.question.choices == ("retry", "accept")
    assert "it may have happened, and must not be repeated unasked" in saga.question.reason


def test_before_an_irreversible_step_everything_can_be_undone(world: World) -> None:
    sagas = world.sagas()
    world.start(sagas, "paid")
    world.hooks["charge.do.before"] = [raising(NotAppliedError("the card was declined"))]
    assert run_to_rest(sagas, "paid/1").status is SagaStatus.COMPENSATED
    assert world.applied("paid/1") == set()
    assert world.execute("SELECT 1 FROM charge") == []


def test_on_failure_of_a_step_wins_over_the_sagas(world: World) -> None:
    first, *rest = TRIP.steps
    world.definitions = (replace(TRIP, steps=(replace(first, on_failure=OnFailure.ASK), *rest)),)
    sagas = world.sagas()
    world.start(sagas)
    world.hooks["seat.do.before"] = [raising(NotAppliedError("full"))]
    assert run_to_rest(sagas).status is SagaStatus.AWAITING_DECISION
