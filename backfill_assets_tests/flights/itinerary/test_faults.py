"""Every fault at every step, forwards and back, and then every choice that is left to a person.

Wherever it rests, the world is as the saga says: see ``endings``.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.sagas import Choice, SagaStatus
from backfill_assets_tests.flights.itinerary.endings import LATE, SAGA, check_rest, follow
from backfill_assets_tests.flights.itinerary.journeys import STEPS, World
from backfill_assets_tests.flights.itinerary.partner_process import Wire
from backfill_assets_tests.stores.children import child
from backfill_assets_tests.stores.sagas.trip import raising

if TYPE_CHECKING:
    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets.stores.sagas.sagas import Sagas

COMPLETED, COMPENSATED = SagaStatus.COMPLETED, SagaStatus.COMPENSATED
AWAITING = SagaStatus.AWAITING_DECISION
HOTELS = ("first_hotel", "second_hotel")
FLIGHTS = ("first_flight", "onward_flight", "return_flight")
ALWAYS = 50  # more often than anything is tried


class Fault(StrEnum):
    """What goes wrong with one direction of one step."""

    REFUSED = "definite failure"  # nothing is free; or somebody else has changed it
    NEVER_DONE = "times out always, without effect"
    NEVER_HEARD = "times out always, with effect"
    LOST_ONCE = "times out once, without effect"
    UNHEARD_ONCE = "times out once, with effect"
    DIES_BEFORE = "its process dies before"
    DIES_AFTER = "its process dies after"
    TWICE = "driven twice at the same time"
    LATE = "taken over, and then it lands"


PASSING = [f for f in Fault if f not in (Fault.REFUSED, Fault.NEVER_DONE, Fault.NEVER_HEARD)]
LASTING = [Fault.REFUSED, Fault.NEVER_DONE, Fault.NEVER_HEARD]


def run(world: World, sagas: Sagas, step: str, direction: str, fault: Fault) -> Saga:
    """Drive the saga through a fault, with whoever has to take it up."""
    before, after = (
        world.hooks[f"{step}.{direction}.before"],
        world.hooks[f"{step}.{direction}.after"],
    )
    silence = raising(TimeoutError("no answer"))
    if fault is Fault.REFUSED:
        _ = world.spoil(step) if direction == "do" else world.meddle(step)
    elif fault is Fault.NEVER_DONE:
        before.extend([silence] * ALWAYS)
    elif fault is Fault.NEVER_HEARD:
        after.extend([silence] * ALWAYS)
    elif fault is Fault.LOST_ONCE:
        before.append(silence)
    elif fault is Fault.UNHEARD_ONCE:
        after.append(silence)
    elif fault in (Fault.DIES_BEFORE, Fault.DIES_AFTER):
        (before if fault is Fault.DIES_BEFORE else after).append(die)
        die_in_a_child(world)
    else:
        before.append(lambda: take_over(world, is_due=fault is Fault.LATE))
    sagas.run(SAGA)
    return sagas.run(SAGA, patience=LATE)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_a_child(world: World) -> None:
    """Drive the saga in a process of its own, which is killed; nobody notices for a minute."""

    def drive() -> None:
        world.sagas("doomed").run(SAGA, patience=LATE)

    with child(drive) as doomed:
        assert doomed.exit_code() == -signal.SIGKILL
    world.hooks.clear()
    world.clock.pass_by(minutes=1)


def take_over(world: World, *, is_due: bool) -> None:
    """Have another process drive the saga, which has not heard that this one still lives."""
    other = world.sagas("other")
    if is_due:
        world.clock.pass_by(minutes=1)
        other.recover(patience=LATE)
    else:
        other.run(SAGA)
    other.close()


def heal(world: World, step: str) -> None:
    """Let everything work again."""
    world.hooks.clear()
    world.execute("UPDATE itinerary.flight SET seats = 178, taken = 0 WHERE seats = 1")
    where = world.execute if step == "first_hotel" else world.execute_at_partner
    where("UPDATE hotels.hotel SET rooms = 12")
    where("UPDATE hotels.stay SET traveller = 'Ada' WHERE state = 'booked'")
    world.execute("UPDATE itinerary.seat SET cabin = 'economy'")


def begun(world: World) -> Sagas:
    sagas = world.sagas()
    world.start(sagas)
    return sagas


def turned_back(world: World) -> Sagas:
    """Return what drives a journey that was booked, and is to be undone."""
    sagas = begun(world)
    assert sagas.run(SAGA, patience=LATE).status is COMPLETED
    sagas.cancel(SAGA, who="ada", why="changed her mind")
    return sagas


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("step", STEPS)
def test_what_passes_by_hinders_no_booking(world: World, step: str, fault: Fault) -> None:
    sagas = begun(world)

    assert run(world, sagas, step, "do", fault).status is COMPLETED
    check_rest(world, sagas)
    assert world.execute("SELECT 1 FROM alert") == []


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("step", STEPS)
def test_what_passes_by_hinders_no_cancellation(world: World, step: str, fault: Fault) -> None:
    sagas = turned_back(world)

    assert run(world, sagas, step, "undo", fault).status is COMPENSATED
    check_rest(world, sagas)
    assert world.execute("SELECT 1 FROM alert") == []


@pytest.mark.parametrize("fault", LASTING)
@pytest.mark.parametrize("step", FLIGHTS)
def test_a_flight_that_cannot_be_had_leaves_nothing(world: World, step: str, fault: Fault) -> None:
    sagas = begun(world)

    assert run(world, sagas, step, "do", fault).status is COMPENSATED
    check_rest(world, sagas)
    assert world.reached["first_hotel.do.before"] == 0


@pytest.mark.parametrize(
    ("choice", "end"),
    [
        (Choice.RETRY, COMPLETED),
        (Choice.REPLACE, COMPLETED),
        (Choice.ACCEPT, COMPLETED),
        (Choice.COMPENSATE, COMPENSATED),
    ],
)
@pytest.mark.parametrize("fault", LASTING)
@pytest.mark.parametrize("step", HOTELS)
def test_a_hotel_that_cannot_be_had_asks_and_each_choice_does_what_it_says(
    world: World, step: str, fault: Fault, choice: Choice, end: SagaStatus
) -> None:
    sagas = begun(world)

    assert run(world, sagas, step, "do", fault).status is AWAITING
    check_rest(world, sagas)
    assert set(FLIGHTS) <= world.applied(SAGA)

    if choice is not Choice.REPLACE or fault is not Fault.REFUSED:
        heal(world, step)
    assert follow(sagas, choice).status is end
    check_rest(world, sagas, vouched_for=step if choice is Choice.ACCEPT else None)


@pytest.mark.parametrize("choice", [Choice.RETRY, Choice.ACCEPT])
@pytest.mark.parametrize("fault", LASTING)
@pytest.mark.parametrize("step", STEPS)
def test_a_cancellation_that_cannot_be_made_asks_and_each_choice_does_what_it_says(
    world: World, step: str, fault: Fault, choice: Choice
) -> None:
    sagas = turned_back(world)

    assert run(world, sagas, step, "undo", fault).status is AWAITING
    check_rest(world, sagas)
    others = set(FLIGHTS) - {step}
    assert not others & world.applied(SAGA)  # no seat waits for somebody else's trouble

    if choice is Choice.RETRY:
        heal(world, step)
    else:
        world.hooks.clear()
    assert follow(sagas, choice).status is COMPENSATED
    check_rest(world, sagas, vouched_for=step if choice is Choice.ACCEPT else None)


@pytest.mark.parametrize("step", STEPS)
def test_a_change_by_somebody_else_is_never_overwritten(world: World, step: str) -> None:
    sagas = turned_back(world)
    run(world, sagas, step, "undo", Fault.REFUSED)

    for _ in range(2):
        assert follow(sagas, Choice.RETRY).status is AWAITING
        assert world.meddled_with(step)
    saga = sagas.get(SAGA)
    assert saga.question is not None
    assert ("business" if step in FLIGHTS else "Bob") in saga.question.reason  # the evidence


@pytest.mark.parametrize("step", STEPS)
def test_what_lands_after_everything_was_undone_is_refused(world: World, step: str) -> None:
    sagas = begun(world)
    seen: list[SagaStatus] = []

    def hang() -> None:
        other = world.sagas("other")
        world.clock.pass_by(minutes=1)
        other.cancel(SAGA, who="eve", why="it hangs")
        seen.append(other.run(SAGA, patience=LATE).status)
        other.close()

    world.hooks[f"{step}.do.before"].append(hang)
    sagas.run(SAGA)

    assert seen == [COMPENSATED]
    assert sagas.get(SAGA).status is COMPENSATED
    check_rest(world, sagas)


ON_THE_WIRE: list[tuple[Wire, int, SagaStatus]] = [
    (Wire.LOSES_REQUEST, 2, COMPLETED),
    (Wire.LOSES_REPLY, 2, COMPLETED),
    (Wire.KEEPS_REQUEST, 2, COMPLETED),
    (Wire.IS_BROKEN, 2, COMPLETED),
    (Wire.SENDS_TWICE, 1, COMPLETED),
    (Wire.LOSES_REQUEST, 5, AWAITING),
    (Wire.LOSES_REPLY, 5, AWAITING),
    (Wire.KEEPS_REQUEST, 5, AWAITING),
    (Wire.IS_BROKEN, 5, AWAITING),
]


@pytest.mark.parametrize(("wire", "times", "end"), ON_THE_WIRE)
def test_whatever_the_wire_does_the_partner_books_once(
    world: World, wire: Wire, times: int, end: SagaStatus
) -> None:
    sagas = begun(world)
    world.partner.order(*[wire] * times)

    assert sagas.run(SAGA, patience=LATE).status is end
    world.partner.deliver()
    check_rest(world, sagas)
    ((count,),) = world.execute_at_partner("SELECT count(*) FROM hotels.stay")
    assert count <= 1

    if end is AWAITING:
        follow(sagas, Choice.COMPENSATE)
    else:
        sagas.cancel(SAGA, who="ada", why="changed her mind")
        sagas.run(SAGA, patience=LATE)
    assert sagas.get(SAGA).status is COMPENSATED
    check_rest(world, sagas)


@pytest.mark.parametrize(("wire", "times"), [(w, n) for w, n, _ in ON_THE_WIRE if n < 5])
def test_whatever_the_wire_does_the_partner_cancels_once(
    world: World, wire: Wire, times: int
) -> None:
    sagas = turned_back(world)
    world.partner.order(*[wire] * times)

    assert sagas.run(SAGA, patience=LATE).status is COMPENSATED
    world.partner.deliver()
    check_rest(world, sagas)
    refunds = "SELECT cents FROM hotels.payment WHERE what = 'refund'"
    assert world.execute_at_partner(refunds) == [(34_200,)]


def test_a_booking_that_arrives_after_its_cancellation_finds_the_door_closed(world: World) -> None:
    sagas = begun(world)
    world.partner.order(*[Wire.KEEPS_REQUEST] * 5)
    sagas.run(SAGA, patience=LATE)
    assert follow(sagas, Choice.COMPENSATE).status is COMPENSATED

    assert world.partner.deliver() == [403] * 5
    check_rest(world, sagas)
