"""Many at once: one act for a key, no circle of waits, and what PostgreSQL asks to try again."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import errors

from backfill_assets.core.errors import BusyError, OperationFailedError
from backfill_assets.core.operations import Attempt, Claimed, Done
from backfill_assets_tests.stores.children import Gate, child
from backfill_assets_tests.stores.log.world import CALL, FILE, WRITE, writes
from backfill_assets_tests.stores.postgres.processes_of_tests import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.core.operations import Json
    from backfill_assets.stores.log.log import IdempotencyLog
    from backfill_assets_tests.stores.log.world import World

RIVALS = 8
FAST_DEADLOCKS = "?options=-c%20deadlock_timeout%3D20ms"  # how soon the server looks for a circle


def together(acts: list[Callable[[], object]]) -> list[object]:
    """Run each in a process of its own, all at the same moment; return what they return."""
    gate = Gate()

    def gated(act: Callable[[], object]) -> Callable[[], object]:
        def wait_and_act() -> object:
            gate.wait()
            return act()

        return wait_and_act

    with ExitStack() as stack:
        running = [stack.enter_context(child(gated(act))) for act in acts]
        gate.open()
        return [one.answer() for one in running]


def deadlocks(world: World) -> int:
    statement = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ((count,),) = world.rows(statement)
    return int(count)


def test_of_many_processes_with_one_key_exactly_one_acts(world: World) -> None:
    def act_once(worker: str) -> object:
        def act(attempt: Attempt) -> Json:
            world.receive(attempt, worker)
            return worker

        try:
            return world.log(worker).run(CALL, "k", 1, act)
        except BusyError:
            return "busy"

    answers = together([lambda w=f"w{n}": act_once(w) for n in range(RIVALS)])  # type: ignore[misc]

    ((_, winner),) = world.calls()
    assert set(answers) <= {winner, "busy"}
    assert world.outcomes() == ["SUCCEEDED"]


@pytest.mark.parametrize("round_", range(3))
def test_batches_in_opposite_orders_share_the_work_and_do_not_deadlock(
    world: World, round_: int
) -> None:
    keys = [f"{round_} {number:03}" for number in range(300)]

    def work(log: IdempotencyLog, order: list[str]) -> tuple[int, int]:
        claims = log.claim_many(FILE, dict.fromkeys(order))
        attempts = [claim.attempt for claim in claims.values() if isinstance(claim, Claimed)]
        log.renew(attempts)
        fenced = log.complete_many(dict.fromkeys(attempts, log._ledger.worker))
        return len(attempts), len(fenced)

    answers = together(
        [
            lambda n=n: work(
                world.log(f"w{n}", url=world.url + FAST_DEADLOCKS), keys[:: 1 - 2 * (n % 2)]
            )  # type: ignore[misc]
            for n in range(RIVALS)
        ]
    )

    assert sum(count for count, _ in answers) == 300  # type: ignore[misc]
    assert {fenced for _, fenced in answers} == {0}  # type: ignore[misc]
    states = world.log().states(keys)
    assert Counter((s.status.value, s.attempt) for s in states) == {("COMPLETED", 1): 300}
    assert deadlocks(world) == 0


def test_attempts_that_are_completed_renewed_and_taken_over_at_once_do_not_deadlock(
    world: World,
) -> None:
    keys = [f"{number:03}" for number in range(200)]
    log = world.log("owner")
    claims = log.claim_many(FILE, dict.fromkeys(keys))
    attempts = [claim.attempt for claim in claims.values() if isinstance(claim, Claimed)]
    late = FILE.policy.lease * 2

    def a_log(worker: str) -> IdempotencyLog:
        return world.log(worker, after=late, url=world.url + FAST_DEADLOCKS)

    def complete(order: list[Attempt]) -> int:
        return len(a_log("owner").complete_many(dict.fromkeys(order, "result")))

    together(
        [
            lambda: complete(attempts),
            lambda: complete(attempts[::-1]),
            lambda: a_log("owner").renew(attempts[::-1]) and None,
            lambda: a_log("rival").claim_many(FILE, dict.fromkeys(keys[::-1])) and None,
            lambda: a_log("supervisor").supervise(),
            lambda: a_log("owner").fail_many(attempts[::-1], OSError("late")) and None,
        ]
    )

    assert deadlocks(world) == 0
    # Whoever was first, each has one end, and no attempt is left over.
    outcomes = Counter(outcome for key in keys for outcome in world.outcomes(key)[:-1])
    assert set(outcomes) <= {"FENCED", "UNKNOWN", "FAILED"}


def test_a_deadlock_inside_a_write_is_tried_again_without_another_attempt(world: World) -> None:
    world.rows("CREATE TABLE account AS SELECT n, 0 AS balance FROM generate_series(1, 2) AS n")
    both_hold_one = threading.Barrier(2)
    tries: list[str] = []

    def transfer(key: str, first: int, second: int) -> None:
        def write(attempt: Attempt, connection: psycopg.Connection) -> Json:
            tries.append(key)
            is_first_try = tries.count(key) == 1
            add = "UPDATE account SET balance = balance + 1 WHERE n = %s"
            connection.execute(add, (first,))
            if is_first_try:
                both_hold_one.wait(20)
            connection.execute(add, (second,))
            return writes("a")(attempt, connection)

        log = world.log(key, url=world.url + FAST_DEADLOCKS)
        assert log.run_transaction(WRITE, key, 1, write) == "a"
        log.close()

    threads = [
        threading.Thread(target=transfer, args=arguments)
        for arguments in (("forwards", 1, 2), ("backwards", 2, 1))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert deadlocks(world) == 1  # the circle was there, and its victim tried again
    assert len(tries) == 3
    assert world.outcomes("forwards") == world.outcomes("backwards") == ["SUCCEEDED"]
    assert world.effects() == [("backwards", 1, "a"), ("forwards", 1, "a")]
    assert world.rows("SELECT balance FROM account") == [(2,), (2,)]


def test_a_serialization_failure_inside_a_write_is_tried_again_without_another_attempt(
    world: World,
) -> None:
    world.rows("CREATE TABLE account AS SELECT 0 AS balance")
    seen: list[int] = []

    def write(attempt: Attempt, connection: psycopg.Connection) -> Json:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        ((balance,),) = connection.execute("SELECT balance FROM account").fetchall()
        if not seen:
            world.rows("UPDATE account SET balance = 10")  # somebody else is quicker
        seen.append(balance)
        connection.execute("UPDATE account SET balance = %s", (balance + 1,))
        return writes("a")(attempt, connection)

    assert world.log().run_transaction(WRITE, "k", 1, write) == "a"

    assert seen == [0, 10]
    assert world.outcomes() == ["SUCCEEDED"]
    assert world.effects() == [("k", 1, "a")]
    assert world.rows("SELECT balance FROM account") == [(11,)]


def test_a_write_that_never_gets_through_is_a_failed_attempt(world: World) -> None:
    tries: list[int] = []

    def write(attempt: Attempt, connection: psycopg.Connection) -> Json:
        writes("a")(attempt, connection)
        tries.append(attempt.number)
        raise errors.SerializationFailure("could not serialize access")

    with pytest.raises(OperationFailedError):
        world.log().run_transaction(WRITE, "k", 1, write)

    assert tries == [1] * 5
    assert world.effects() == []
    assert world.outcomes() == ["FAILED"]


def test_a_claim_that_waited_for_another_sees_the_attempt_that_began_meanwhile(
    world: World,
) -> None:
    """A statement sees rows as they were when it began; the one it waited for is newer."""
    first = world.log("first")
    holder = first._sessions.connection()
    holder.autocommit = False
    assert isinstance(first.claim_many(CALL, {"k": 1})["k"], Claimed)  # and does not commit yet

    def hasty() -> object:  # its clock is far ahead: for it the lease is over
        return world.log("hasty", after=CALL.policy.lease * 100).claim_many(CALL, {"k": 1})["k"]

    with child(hasty) as running:
        wait_until(lambda: waiting(world))
        holder.commit()
        claim = running.answer()

    assert isinstance(claim, Claimed)
    assert (claim.attempt.number, claim.attempt.taken_from) == (2, "first")
    assert claim.attempt.previous is not None
    assert world.outcomes() == ["UNKNOWN", "RUNNING"]


def test_a_seal_that_waited_for_a_claim_ends_the_attempt_that_began_meanwhile(
    world: World,
) -> None:
    first = world.log("first")
    holder = first._sessions.connection()
    holder.autocommit = False
    assert isinstance(first.claim_many(CALL, {"k": 1})["k"], Claimed)

    with child(lambda: world.log("saga").seal(CALL, "k", reason="undone")) as running:
        wait_until(lambda: waiting(world))
        holder.commit()
        stood = running.answer()

    assert (stood.attempt, stood.in_doubt) == (1, True)
    assert world.outcomes() == ["UNKNOWN"]


def waiting(world: World) -> list[tuple[object, ...]]:
    return world.rows(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event_type = 'Lock'"
    )


def test_a_duplicate_of_a_batch_gets_what_the_first_one_stored(world: World) -> None:
    log = world.log()
    claims = log.claim_many(FILE, {"a": 1, "b": 1})
    results = {claim.attempt: key for key, claim in claims.items() if isinstance(claim, Claimed)}
    assert log.complete_many(results) == []

    assert log.claim_many(FILE, {"b": 1, "a": 1}) == {"b": Done("b", 1), "a": Done("a", 1)}
