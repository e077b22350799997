"""Short locks: all or none, never for ever, and a step starts only under locks that outlive it."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.core.errors import NotAppliedError, TryAgainError
from backfill_assets.core.operations import Kind
from backfill_assets.core.sagas import Choice, OnFailure, SagaDefinition, SagaStatus
from backfill_assets.stores.sagas.locks import keep_until_commit, take_locks
from backfill_assets_tests.stores.sagas.trip import (
    START,
    TIMEOUT,
    TRIP,
    World,
    raising,
    step,
)

if TYPE_CHECKING:
    from backfill_assets.stores.sagas.sagas import Sagas

LATE = timedelta(minutes=10)
PAIR = SagaDefinition(
    name="pair",
    steps=(step("seat", Kind.TRANSACTIONAL, locks=("seat/{flight}", "seat/{other}")),),
)


@pytest.fixture
def sagas(world: World) -> Sagas:
    world.definitions = (TRIP, PAIR)
    return world.sagas()


def held(world: World) -> list[tuple[str, str]]:
    return world.execute("SELECT resource, saga_id FROM saga_lock ORDER BY resource")


def hold(world: World, saga_id: str, *resources: str, seconds: int) -> bool:
    """Take locks as another saga does, for so long."""
    until = world.clock.now + timedelta(seconds=seconds)
    with psycopg.connect(world.url, autocommit=True) as connection:
        return take_locks(connection, saga_id, resources, world.clock.now, until)


def test_where_one_lock_is_taken_nothing_is_held_and_nothing_is_done(
    world: World, sagas: Sagas
) -> None:
    world.start(sagas, key="other")
    assert hold(world, "trip/other", "seat/UA2", seconds=30)
    world.start(sagas, "pair", seat={"flight": "UA1", "other": "UA2"})
    saga = sagas.run("pair/1")

    assert held(world) == [("seat/UA2", "trip/other")]
    assert world.reached() == []
    assert saga.status is SagaStatus.RUNNING
    assert saga.due_at == START + timedelta(seconds=2)  # it looks again


def test_a_lock_whose_holder_died_ends_by_itself(world: World, sagas: Sagas) -> None:
    world.start(sagas, key="dead")
    hold(world, "trip/dead", "seat/UA1", seconds=30)
    world.start(sagas)
    assert sagas.run("trip/1", patience=LATE).status is SagaStatus.COMPLETED
    assert world.clock.now == START + timedelta(seconds=30)


def test_who_does_not_get_its_locks_in_time_ends_without_a_trace(
    world: World, sagas: Sagas
) -> None:
    world.start(sagas, key="other")
    hold(world, "trip/other", "seat/UA1", seconds=3600)
    world.start(sagas)
    saga = sagas.run("trip/1", patience=LATE)
    assert saga.status is SagaStatus.COMPENSATED
    assert world.reached() == []
    turned = sagas.case_file("trip/1").journal[1]
    assert turned.why == "its locks were not free for 0:01:00: seat/UA1 is trip/other's"


def test_who_loses_its_locks_half_way_asks_when_something_was_done(
    world: World, sagas: Sagas
) -> None:
    world.start(sagas)
    world.hooks["room.do.before"] = [raising(ConnectionError("down"))] * 2
    world.start(sagas, key="other")
    sagas.run("trip/1")
    world.clock.pass_by(minutes=1)  # the locks of the first attempt are over
    assert hold(world, "trip/other", "seat/UA1", seconds=3600)
    saga = sagas.run("trip/1", patience=LATE)
    assert saga.status is SagaStatus.AWAITING_DECISION
    assert saga.question is not None
    assert saga.question.choices == ("retry", "compensate")
    assert world.reached().count("room.do.before") == 1
    ((body,),) = world.execute("SELECT body FROM alert")
    assert [(lock["resource"], lock["saga"]) for lock in body["locks"]] == [
        ("seat/UA1", "trip/other")
    ]


def test_a_step_starts_under_locks_that_outlive_its_timeout(world: World, sagas: Sagas) -> None:
    world.start(sagas)
    seen: list[object] = []
    world.hooks["voucher.do.before"] = [
        lambda: seen.extend(world.execute("SELECT expires_at FROM saga_lock"))
    ]
    world.hooks["room.do.before"] = [raising(ConnectionError("down"))]
    sagas.run("trip/1", patience=LATE)
    deadline = START + timedelta(seconds=1) + TIMEOUT
    assert seen == [(deadline + timedelta(seconds=5),)]


def test_a_transaction_whose_lock_went_to_somebody_else_does_not_commit(
    world: World, sagas: Sagas
) -> None:
    world.start(sagas, key="other")
    world.start(sagas)

    def lose() -> None:
        world.clock.pass_by(minutes=1)
        assert hold(world, "trip/other", "seat/UA1", seconds=3600)

    world.hooks["seat.do.after"] = [lose]
    sagas.run("trip/1", patience=LATE)
    assert "seat.do.after" in world.reached()
    assert world.applied("trip/1") == set()
    (error,) = world.execute("SELECT error_type FROM idempotency_attempt")
    assert error == ("TryAgainError",)


def test_a_lock_cannot_be_taken_over_between_the_last_look_and_the_commit(
    world: World, sagas: Sagas
) -> None:
    world.start(sagas, key="other")
    world.start(sagas)
    hold(world, "trip/1", "seat/UA1", seconds=30)
    taken: list[bool] = []
    with psycopg.connect(world.url) as connection:
        keep_until_commit(connection, "trip/1", ["seat/UA1"], world.clock.now)
        world.clock.pass_by(minutes=1)  # over, but not before this transaction is
        rival = threading.Thread(
            target=lambda: taken.append(hold(world, "trip/other", "seat/UA1", seconds=30))
        )
        rival.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        # Asked outside of this transaction, which sees the activity of its first look only.
        while rival.is_alive() and not world.execute(waiting):
            pass
        assert taken == []
        connection.commit()
    rival.join()
    assert taken == [True]


def test_a_lock_that_is_over_holds_nothing(world: World, sagas: Sagas) -> None:
    world.start(sagas)
    hold(world, "trip/1", "seat/UA1", seconds=30)
    world.clock.pass_by(seconds=30)
    with (
        psycopg.connect(world.url) as connection,
        pytest.raises(TryAgainError, match="trip/1 does not hold seat/UA1 any more"),
    ):
        keep_until_commit(connection, "trip/1", ["seat/UA1"], world.clock.now)


def test_sagas_that_name_their_locks_in_any_order_never_wait_in_a_circle(
    world: World, sagas: Sagas
) -> None:
    names = [f"seat/{number}" for number in range(6)]
    for number in range(4):
        world.start(sagas, key=str(number))
    takings: list[bool] = []

    def rush(number: int) -> None:
        chance = random.Random(number)
        with psycopg.connect(world.url, autocommit=True) as connection:
            for _ in range(40):
                chance.shuffle(names_of_own := list(names))
                now = world.clock.now
                until = now + timedelta(seconds=1)
                takings.append(take_locks(connection, f"trip/{number}", names_of_own, now, until))
                connection.execute("DELETE FROM saga_lock WHERE saga_id = %s", [f"trip/{number}"])

    threads = [threading.Thread(target=rush, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(takings) == 160  # a deadlock would have ended a thread
    assert any(takings)


def test_two_sagas_do_not_take_the_last_seat(world: World) -> None:
    one, two = world.sagas("one"), world.sagas("two")
    world.start(one, key="first")
    world.start(two, key="second")
    world.hooks["room.do.before"] = [lambda: (two.run("trip/second"), two.close())]
    assert one.run("trip/first").status is SagaStatus.COMPLETED
    assert two.get("trip/second").status is SagaStatus.RUNNING  # it waits for the lock
    assert two.run("trip/second", patience=LATE).status is SagaStatus.COMPENSATED
    assert world.execute("SELECT holder FROM seat WHERE flight = 'UA1'") == [("trip/first",)]


def test_who_waits_for_a_person_holds_nothing_and_takes_its_locks_again(world: World) -> None:
    world.definitions = (replace(TRIP, on_failure=OnFailure.ASK),)
    sagas = world.sagas()
    world.start(sagas)
    world.hooks["room.do.before"] = [raising(NotAppliedError("full"))]
    saga = sagas.run("trip/1", patience=LATE)
    assert held(world) == []
    seen: list[object] = []
    world.hooks["room.do.before"] = [lambda: seen.extend(held(world))]
    sagas.decide("trip/1", saga.version, Choice.RETRY, who="ada", why="")
    sagas.run("trip/1", patience=LATE)
    assert seen == [("seat/UA1", "trip/1")]
