"""A journey that is booked as a whole, cancelled for a fee, or waits for a person."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.sagas import Choice, SagaStatus
from backfill_assets_tests.flights.itinerary.journeys import JOURNEY, PRICES, STEPS, World

if TYPE_CHECKING:
    from backfill_assets.core.operations import Json
    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets.stores.sagas.sagas import Sagas

LATE = timedelta(minutes=30)  # enough for every wait of a saga
SAGA = "book_itinerary/1"


def receipts(sagas: Sagas, direction: str) -> dict[str, Json]:
    trails = sagas.case_file(SAGA).trails
    operations = {t.state.operation: t.state.result for t in trails}
    return {step: operations.get(f"{step}.{direction}") for step in STEPS}


def booked(world: World) -> tuple[Sagas, Saga]:
    sagas = world.sagas()
    world.start(sagas)
    return sagas, sagas.run(SAGA, patience=LATE)


def cancelled(sagas: Sagas) -> Saga:
    sagas.cancel(SAGA, who="ada", why="changed her mind")
    return sagas.run(SAGA, patience=LATE)


def test_a_journey_is_booked_as_a_whole_and_paid_once(world: World) -> None:
    sagas, saga = booked(world)

    assert saga.status is SagaStatus.COMPLETED
    assert world.applied(SAGA) == set(STEPS)
    assert world.money() == sum(PRICES.values()) == 138_074
    assert receipts(sagas, "do")["first_flight"] == {
        "flight": "UA303",
        "origin": "JFK",
        "day": "2013-08-03",
        "traveller": "Ada",
        "cabin": "economy",
        "price_cents": 28_274,
        "booked_at": "2013-08-03T12:00:00+00:00",
        "as_if": "2013-07-04T12:00:00+00:00",
    }
    world.check_books()


def test_a_flight_that_is_made_up_says_so_wherever_it_is_named(world: World) -> None:
    sagas, _ = booked(world)

    found = receipts(sagas, "do")
    assert found["onward_flight"]["flight"] == "made-up SFO-HNL"  # type: ignore[index, call-overload]
    assert found["return_flight"]["flight"] == "made-up HNL-JFK"  # type: ignore[index, call-overload]
    offered = "SELECT flight, is_made_up, seats, seats_from FROM itinerary.flight ORDER BY day"
    assert world.execute(offered) == [
        ("UA303", False, 178, "aircraft register"),
        ("made-up SFO-HNL", True, 120, "assumed"),
        ("made-up HNL-JFK", True, 120, "assumed"),
    ]


@pytest.mark.parametrize(
    ("days_later", "fees"),
    [
        # Thirty days before the first flight: 10 % of flights, 5 % of hotels.
        (0, (2_827, 2_490, 2_490, 1_200, 1_800)),
        # Ten days before it, twelve before the next, fifteen before the last.
        (20, (14_137, 12_450, 2_490, 1_200, 1_800)),
        # The day before the first flight; the hotels' clock stands still at the partner.
        (29, (28_274, 12_450, 12_450, 7_200, 1_800)),
        # When all is over.
        (60, (28_274, 24_900, 24_900, 24_000, 1_800)),
    ],
)
def test_undoing_is_not_restoring_the_fee_depends_on_the_time_left(
    world: World, days_later: int, fees: tuple[int, ...]
) -> None:
    sagas, _ = booked(world)
    world.clock.pass_by(days=days_later)

    assert cancelled(sagas).status is SagaStatus.COMPENSATED
    assert world.applied(SAGA) == set()
    assert receipts(sagas, "undo") == {
        step: {"fee_cents": fee, "refund_cents": PRICES[step] - fee}
        for step, fee in zip(STEPS, fees, strict=True)
    }
    assert world.money() == sum(fees)
    world.check_books()


@pytest.mark.parametrize("step", ["first_hotel", "second_hotel"])
def test_a_full_hotel_undoes_no_flight_and_a_person_picks_another(world: World, step: str) -> None:
    world.spoil(step)
    sagas, saga = booked(world)

    assert saga.status is SagaStatus.AWAITING_DECISION
    assert world.applied(SAGA) == set(STEPS) - {step}
    assert saga.question is not None
    city, names = ("SFO", "Park Station") if step == "first_hotel" else ("HNL", "Harbour Garden")
    first, second = (f"{city} {name}" for name in names.split())
    expected = f"free in {city}: {first} (12 free, 155.00 a night), {second} (12 free, 190.00 a"
    assert expected in saga.question.reason
    (offered,) = re.findall(r"replace with (\{.*?\})", saga.question.reason)
    arguments = json.loads(offered)
    assert arguments == {**JOURNEY.arguments[step], "hotel": first}  # type: ignore[dict-item]

    given = {"who": "ada", "why": "the other one", "step": step, "arguments": arguments}
    sagas.decide(SAGA, saga.version, Choice.REPLACE, **given)
    assert sagas.run(SAGA, patience=LATE).status is SagaStatus.COMPLETED
    assert world.applied(SAGA) == set(STEPS) - {step} | {f"{step}@2"}
    world.check_books()


def test_a_flight_that_is_full_costs_nothing(world: World) -> None:
    world.spoil("return_flight")
    _, saga = booked(world)

    assert saga.status is SagaStatus.COMPENSATED
    assert world.applied(SAGA) == set()
    assert world.reached["first_hotel.do.before"] == world.reached["second_hotel.do.before"] == 0
