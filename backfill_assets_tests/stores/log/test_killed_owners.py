"""An owner that is killed, at every point of an operation; and one that dies again and again."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import BudgetSpentError, BusyError, OutcomeUnknownError
from backfill_assets.core.operations import Attempt, Claimed, Found, Operation, Outcome, Policy
from backfill_assets_tests.stores.children import child, in_child
from backfill_assets_tests.stores.log.world import (
    AFTER_THE_LEASE,
    CALL,
    FILE,
    PAY,
    PLAIN_CALL,
    WRITE,
    die,
    not_called,
    writes,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    from backfill_assets.core.operations import Json
    from backfill_assets_tests.stores.log.world import World


def killed(act: Callable[[], object]) -> None:
    """Run something in a process that dies of it."""
    with child(act) as running:
        assert running.exit_code() == -signal.SIGKILL


def killed_in_act(world: World, operation: Operation) -> None:
    """Be killed after the remote was reached."""

    def act(attempt: Attempt) -> Json:
        world.receive(attempt, "first")
        die()
        return None

    world.log("first").run(operation, "k", 1, act)


def test_killed_before_the_claim_commits_there_is_no_row_and_the_retry_is_attempt_1(
    world: World,
) -> None:
    def claim_and_die() -> None:
        log = world.log("first")
        log._sessions.connection().autocommit = False
        assert isinstance(log.claim_many(CALL, {"k": 1})["k"], Claimed)
        die()

    killed(claim_and_die)

    assert world.outcomes() == []
    assert world.log("second").run(CALL, "k", 1, lambda attempt: attempt.number) == 1


def test_killed_between_claim_and_act_the_lease_decides_and_attempt_1_is_unknown(
    world: World,
) -> None:
    def claim_and_die() -> None:
        world.log("first").claim_many(CALL, {"k": 1})
        die()

    killed(claim_and_die)
    second = world.log("second")
    with pytest.raises(BusyError):
        second.run(CALL, "k", 1, not_called)
    world.clock.forward(AFTER_THE_LEASE)

    def act(attempt: Attempt) -> Json:
        assert (attempt.number, attempt.spent, attempt.in_doubt) == (2, 2, True)
        assert attempt.taken_from == "first"
        assert attempt.previous is not None
        assert attempt.previous.outcome is Outcome.UNKNOWN
        assert attempt.previous.error_message == "its lease ran out, and second took over"
        return "done"

    assert second.run(CALL, "k", 1, act) == "done"
    assert world.outcomes() == ["UNKNOWN", "SUCCEEDED"]


def test_killed_after_its_write_a_transaction_is_rolled_back_and_done_once(world: World) -> None:
    def write_and_die(attempt: Attempt, connection: psycopg.Connection) -> Json:
        writes("first")(attempt, connection)
        assert connection.execute("SELECT count(*) FROM effect").fetchone() == (1,)
        die()
        return None

    killed(lambda: world.log("first").run_transaction(WRITE, "k", 1, write_and_die))
    world.clock.forward(AFTER_THE_LEASE)

    assert world.log("second").run_transaction(WRITE, "k", 1, writes("second")) == "second"
    assert world.effects() == [("k", 2, "second")]
    assert world.outcomes() == ["UNKNOWN", "SUCCEEDED"]


def test_killed_after_its_file_was_published_it_is_adopted_and_not_written_again(
    world: World, tmp_path: Path
) -> None:
    target = tmp_path / "target"

    def publish_and_die(_: Attempt) -> Json:
        target.write_text("first")
        die()
        return None

    killed(lambda: world.log("first").run(FILE, "k", 1, publish_and_die))
    world.clock.forward(AFTER_THE_LEASE)
    written_at = target.stat().st_mtime_ns

    result = world.log("second").run(
        FILE, "k", 1, not_called, verify=lambda _: Found(target.read_text())
    )

    assert result == "first"
    assert target.stat().st_mtime_ns == written_at
    assert world.outcomes() == ["UNKNOWN", "SUCCEEDED"]


def test_killed_after_its_call_it_is_repeated_under_the_same_key_where_the_remote_honours_it(
    world: World,
) -> None:
    killed(partial(killed_in_act, world, CALL))
    world.clock.forward(AFTER_THE_LEASE)

    world.log("second").run(CALL, "k", 1, lambda attempt: world.receive(attempt, "second"))

    assert world.calls() == [("call:k", "first"), ("call:k", "second")]


@pytest.mark.parametrize("operation", [PLAIN_CALL, PAY], ids=lambda operation: operation.name)
def test_killed_after_its_call_it_is_asked_about_where_that_can_be_done(
    world: World, operation: Operation
) -> None:
    killed(partial(killed_in_act, world, operation))
    world.clock.forward(AFTER_THE_LEASE)

    result = world.log("second").run(operation, "k", 1, not_called, verify=world.received)

    assert result == "first"
    assert len(world.calls()) == 1


def test_what_was_found_not_to_have_happened_is_done(world: World) -> None:
    def claim_and_die() -> None:
        world.log("first").claim_many(PAY, {"k": 1})
        die()

    killed(claim_and_die)
    world.clock.forward(AFTER_THE_LEASE)
    second = world.log("second")

    second.run(PAY, "k", 1, lambda a: world.receive(a, "second"), verify=world.received)

    assert world.calls() == [("pay:k", "second")]
    assert [state.in_doubt for state in second.states(["k"])] == [False]


@pytest.mark.parametrize("operation", [PLAIN_CALL, PAY], ids=lambda operation: operation.name)
@pytest.mark.parametrize("attempts", [1, 5])
def test_killed_after_its_call_where_nobody_can_tell_a_person_is_asked_and_it_is_not_repeated(
    world: World, operation: Operation, attempts: int
) -> None:
    one = Operation(name=operation.name, kind=operation.kind, policy=Policy(max_attempts=attempts))
    killed(partial(killed_in_act, world, one))
    world.clock.forward(AFTER_THE_LEASE)

    for _ in range(2):
        with pytest.raises(OutcomeUnknownError, match="find out, and seal it, or reopen it"):
            world.log("second").run(one, "k", 1, not_called)

    assert len(world.calls()) == 1
    (alert,) = world.alerts()
    assert alert.subject == f"{operation.name} k needs a person"


def test_a_crash_loop_spends_the_budget_and_there_is_no_sixth_start(world: World) -> None:
    for _ in range(5):
        killed(partial(killed_in_act, world, CALL))
        world.clock.forward(AFTER_THE_LEASE)
    log = world.log("second")

    for _ in range(2):
        with pytest.raises(BudgetSpentError, match="5 attempts, and no other may start"):
            log.run(CALL, "k", 1, not_called)

    assert len(world.calls()) == 5
    assert world.outcomes() == ["UNKNOWN"] * 4 + ["RUNNING"]
    assert [alert.dedup_key for alert in world.alerts()] == ["needs_person:call:k:5"]
    # The last one is ended as well, and that gives it no other try.
    assert log.supervise() == [("k", "call")]
    assert world.outcomes() == ["UNKNOWN"] * 5
    with pytest.raises(BudgetSpentError):
        log.run(CALL, "k", 1, not_called)
    # A person gives it a new budget. What may have happened is still in doubt: the same remote key.
    assert log.reopen(CALL, {"k": 1}, reason="the cause is mended") == ["k"]
    assert log.run(CALL, "k", 1, lambda attempt: attempt.remote_key) == "call:k"
    assert world.outcomes() == ["UNKNOWN"] * 5 + ["SUCCEEDED"]


def test_a_transaction_that_is_killed_leaves_its_row_free_at_once(world: World) -> None:
    def claim_in_a_child() -> bool:
        return isinstance(world.log("dead").claim_many(WRITE, {"k": 1})["k"], Claimed)

    assert in_child(claim_in_a_child)
    assert world.log("second").end_worker(WRITE, "dead") == ["k"]

    # The worker is known to be dead: nobody waits for its lease.
    assert world.log("second").run_transaction(WRITE, "k", 1, writes("second")) == "second"
    assert world.outcomes() == ["UNKNOWN", "SUCCEEDED"]
