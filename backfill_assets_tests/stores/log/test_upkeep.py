"""Seals, supervisors, leases that are renewed, forks, and what is forgotten."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.core.errors import OperationFailedError, SealedError, StaleAttemptError
from backfill_assets.core.operations import Busy, Claimed, Operation, Policy
from backfill_assets_tests.stores.children import child, in_child
from backfill_assets_tests.stores.log.test_rivals import waiting
from backfill_assets_tests.stores.log.world import (
    AFTER_THE_LEASE,
    CALL,
    FILE,
    LEASE,
    NOW,
    PAY,
    PLAIN_CALL,
    WRITE,
    not_called,
    writes,
)
from backfill_assets_tests.stores.postgres.processes_of_tests import wait_until

if TYPE_CHECKING:
    from backfill_assets.core.operations import Attempt, Json
    from backfill_assets.stores.log.log import IdempotencyLog
    from backfill_assets_tests.stores.log.world import World


def claimed(log: IdempotencyLog, operation: Operation = CALL, key: str = "k") -> Attempt:
    claim = log.claim_many(operation, {key: 1})[key]
    assert isinstance(claim, Claimed)
    return claim.attempt


def test_a_seal_before_the_first_attempt_lets_none_start(world: World) -> None:
    log = world.log()
    stood = log.seal(CALL, "k", reason="the order was cancelled")
    assert stood.never_ran
    assert log.seal(CALL, "k", reason="twice") == stood  # the first reason stays

    with pytest.raises(SealedError, match="see its trail"):
        log.run(CALL, "k", 1, not_called)
    assert world.outcomes() == []


def test_a_seal_of_what_is_done_says_its_result_and_keeps_it(world: World) -> None:
    log = world.log()
    log.run(CALL, "k", 1, lambda _: "receipt")

    stood = log.seal(CALL, "k", reason="undone")

    assert (stood.is_completed, stood.result, stood.in_doubt) == (True, "receipt", False)
    with pytest.raises(SealedError):
        log.run(CALL, "k", 1, not_called)
    assert world.outcomes() == ["SUCCEEDED"]


def test_a_seal_fences_the_attempt_at_work_whose_failure_is_late_too(world: World) -> None:
    log = world.log()
    attempt = claimed(log)
    log.seal(CALL, "k", reason="undone")

    assert log.renew([attempt]) == [attempt]
    assert log.fail_many([attempt], OSError("no answer")) == {}
    assert world.outcomes() == ["FENCED"]


def test_a_seal_in_a_transaction_that_is_rolled_back_is_none(world: World) -> None:
    log = world.log()
    with psycopg.connect(world.url) as connection:
        log.seal(CALL, "k", reason="undone", connection=connection)
        connection.rollback()

    assert log.run(CALL, "k", 1, lambda _: "done") == "done"


def test_a_seal_waits_for_a_transaction_that_is_about_to_commit(world: World) -> None:
    log = world.log()
    attempt = claimed(log, WRITE)
    with log._sessions.transaction(60) as connection:
        writes("a")(attempt, connection)
        assert log.complete_many({attempt: "a"}, connection=connection) == []
        with child(lambda: world.log("saga").seal(WRITE, "k", reason="undone")) as saga:
            wait_until(lambda: waiting(world))
            connection.execute("COMMIT")
            stood = saga.answer()
            connection.execute("BEGIN")

    assert (stood.is_completed, stood.result) == (True, "a")  # it knows what is to be undone
    assert world.effects() == [("k", 1, "a")]


def test_a_transaction_that_was_sealed_while_it_wrote_leaves_nothing(world: World) -> None:
    log = world.log()

    def write(attempt: Attempt, connection: psycopg.Connection) -> Json:
        assert not log.seal(WRITE, "k", reason="undone").is_completed
        return writes("late")(attempt, connection)

    with pytest.raises(StaleAttemptError):
        log.run_transaction(WRITE, "k", 1, write)

    assert world.effects() == []
    assert world.outcomes() == ["FENCED"]


def test_a_supervisor_leaves_a_transaction_that_is_about_to_commit_alone(world: World) -> None:
    log = world.log()
    attempt = claimed(log, WRITE)
    world.clock.forward(AFTER_THE_LEASE)
    with log._sessions.transaction(60) as connection:
        assert log.complete_many({attempt: "a"}, connection=connection) == []
        assert world.log("supervisor").supervise() == []

    assert world.outcomes() == ["SUCCEEDED"]


def test_a_supervisor_ends_what_its_grace_and_names_let_it(world: World) -> None:
    log = world.log()
    claimed(log, CALL)
    claimed(log, FILE, "f")
    world.clock.forward(LEASE)

    assert log.supervise(grace=timedelta(seconds=1)) == []
    assert log.supervise(["file"]) == [("f", "file")]
    assert log.supervise() == [("k", "call")]
    assert log.supervise() == []
    # It may be tried again at once, by anyone.
    assert claimed(log).number == 2


def test_a_lease_is_renewed_while_its_owner_works(world: World) -> None:
    short = replace(FILE, policy=Policy(lease=timedelta(milliseconds=60)))
    log = world.log()
    attempt = claimed(log, short)
    threads = threading.active_count()
    with log.kept_alive([attempt]):
        world.clock.forward(timedelta(minutes=10))
        wait_until(lambda: log.states(["k"])[0].lease_until == world.clock.now + short.policy.lease)
        answer = world.log("second").claim_many(short, {"k": 1})["k"]
        assert answer == Busy(short.policy.lease, "first")
    assert threading.active_count() == threads

    assert log.complete_many({attempt: "done"}) == []


def test_a_lease_that_was_taken_over_is_not_renewed_and_its_thread_ends(world: World) -> None:
    short = replace(FILE, policy=Policy(lease=timedelta(milliseconds=60)))
    log = world.log()
    attempt = claimed(log, short)
    threads = threading.active_count()
    world.clock.forward(LEASE)
    taken = claimed(world.log("second"), short)
    before = world.row()
    with log.kept_alive([attempt]):
        wait_until(lambda: threading.active_count() == threads)

    assert taken.number == 2
    assert world.row() == before


def test_renewing_survives_a_connection_that_is_lost(world: World) -> None:
    short = replace(FILE, policy=Policy(lease=timedelta(milliseconds=60)))
    log = world.log()
    attempt = claimed(log, short)

    def is_renewed() -> bool:
        return log.states(["k"])[0].lease_until == world.clock.now + short.policy.lease

    with log.kept_alive([attempt]):
        for _ in range(2):
            world.clock.forward(LEASE)
            wait_until(is_renewed)
            world.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


def test_a_forked_process_opens_a_connection_of_its_own(world: World) -> None:
    log = world.log()
    attempt = claimed(log)

    def complete() -> tuple[int, int]:
        assert log.complete_many({attempt: "from the child"}) == []
        log.close()
        return attempt.number, 0

    assert in_child(complete) == (1, 0)
    assert log.run(CALL, "k", 1, not_called) == "from the child"


def test_what_has_ended_long_ago_is_forgotten_and_what_waits_for_a_person_is_kept(
    world: World,
) -> None:
    log = world.log()
    log.run(CALL, "done", 1, lambda _: "done")
    log.seal(CALL, "sealed", reason="undone")
    claimed(log, CALL, "at work")
    with pytest.raises(OperationFailedError):
        log.run(PAY, "in doubt", 1, times_out)
    with pytest.raises(OperationFailedError):
        log.run(PLAIN_CALL, "in doubt, sealed", 1, times_out)
    log.seal(PLAIN_CALL, "in doubt, sealed", reason="undone")

    assert log.prune(NOW) == 0
    world.clock.forward(timedelta(days=400))
    log.run(CALL, "new", 1, lambda _: "new")

    assert log.prune(NOW + timedelta(days=1)) == 3
    kept = world.rows("SELECT idempotency_key FROM idempotency_log ORDER BY 1")
    assert kept == [("at work",), ("in doubt",), ("new",)]
    assert world.outcomes("done") == []
    # A new history of its key begins, and what is late from the old one is fenced by its claim.
    assert claimed(log, CALL, "done").number == 1


def times_out(_: Attempt) -> Json:
    raise TimeoutError("no answer")


def test_open_states_are_what_is_not_completed_by_the_beginning_of_the_key(world: World) -> None:
    log = world.log()
    log.run(CALL, "2013-08-01|JFK", 1, lambda _: "done")
    claimed(log, CALL, "2013-08-02|JFK")
    claimed(log, CALL, "2014_08-02|JFK")

    assert [s.key for s in log.open_states(CALL, "2013")] == ["2013-08-02|JFK"]
    assert [s.key for s in log.open_states(CALL, "201_")] == []


def test_a_failure_tells_when_the_next_attempt_may_start_also_where_the_caller_says(
    world: World,
) -> None:
    log = world.log()
    attempt = claimed(log)
    at = NOW + timedelta(days=1)

    assert log.fail_many([attempt], OSError("full"), retry_at=at) == {attempt: at}
    (state,) = log.states(["k"])
    assert (state.retry_at, state.error and state.error.error_message) == (at, "full")
