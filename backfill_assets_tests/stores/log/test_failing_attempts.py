"""Attempts that fail: what is kept of them, when the next one may start, and when none may."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import (
    BudgetSpentError,
    BusyError,
    DuplicateEffectError,
    NotAppliedError,
    OperationError,
    OperationFailedError,
    SourceNotReadyError,
)
from backfill_assets.core.operations import Claimed, Outcome, Policy
from backfill_assets_tests.stores.log.world import (
    AFTER_THE_LEASE,
    CALL,
    FILE,
    NOW,
    PLAIN_CALL,
    WRITE,
    not_called,
    writes,
)

if TYPE_CHECKING:
    import psycopg

    from backfill_assets.core.operations import Attempt, FailedAttempt, Json
    from backfill_assets_tests.stores.log.world import World


class UnspeakableError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def raising(error: BaseException) -> Json:
    raise error


def test_every_failed_attempt_keeps_type_message_trace_and_times_and_success_keeps_them_too(
    world: World,
) -> None:
    log = world.log()
    for message in ("first", "second"):
        with pytest.raises(OperationFailedError):
            log.run(CALL, "k", 1, lambda _, text=message: raising(ValueError(text)))  # type: ignore[misc]
        world.clock.forward(timedelta(seconds=10))

    assert log.run(CALL, "k", 1, lambda _: "done") == "done"

    (trail,) = log.trail("k")
    first, second, third = trail.attempts
    assert [(a.error_type, a.error_message) for a in trail.attempts] == [
        ("ValueError", "first"),
        ("ValueError", "second"),
        (None, None),
    ]
    assert "in raising" in str(first.error_trace)
    assert (first.started_at, first.ended_at) == (NOW, NOW)
    assert second.started_at == NOW + timedelta(seconds=10)
    assert [a.outcome for a in trail.attempts] == ["UNKNOWN", "UNKNOWN", "SUCCEEDED"]
    assert third.result_digest is not None
    assert trail.state.result == "done"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UnspeakableError(), "its text cannot be made: RuntimeError"),
        (ValueError("a\0b"), "a�b"),
        (OSError("\udcff.parquet"), "\\udcff.parquet"),
        (ValueError("x" * 5000), "x" * 4000),
    ],
    ids=["unspeakable", "zero", "undecodable", "long"],
)
def test_an_error_of_any_text_ends_the_attempt_and_raises_the_alert(
    world: World, error: Exception, message: str
) -> None:
    once = replace(CALL, policy=Policy(max_attempts=1))

    with pytest.raises(OperationFailedError):
        world.log().run(once, "k", 1, lambda _: raising(error))

    (attempt,) = world.log().trail("k")[0].attempts
    assert (attempt.outcome, attempt.error_message) == (Outcome.UNKNOWN, message)
    assert len(world.alerts()) == 1


def test_only_what_is_sure_not_to_have_happened_is_failed(world: World) -> None:
    log = world.log()
    with pytest.raises(OperationFailedError):
        log.run(PLAIN_CALL, "sure", 1, lambda _: raising(NotAppliedError("no")))
    with pytest.raises(OperationFailedError):
        log.run(PLAIN_CALL, "unsure", 1, lambda _: raising(TimeoutError("no answer")))
    with pytest.raises(OperationFailedError):
        log.run_transaction(WRITE, "rolled back", 1, lambda *_: raising(TimeoutError("slow")))

    assert world.outcomes("sure") == ["FAILED"]
    assert world.outcomes("unsure") == ["UNKNOWN"]
    assert world.outcomes("rolled back") == ["FAILED"]
    assert {s.key: s.in_doubt for s in log.states(["sure", "unsure", "rolled back"])} == {
        "sure": False,
        "unsure": True,
        "rolled back": False,
    }


def test_an_unknown_outcome_is_asked_about_before_it_is_tried_again(world: World) -> None:
    log = world.log()

    def times_out(attempt: Attempt) -> Json:
        world.receive(attempt, "first")
        raise TimeoutError("no answer")

    with pytest.raises(OperationFailedError):
        log.run(PLAIN_CALL, "k", 1, times_out)
    world.clock.forward(timedelta(seconds=2))

    assert log.run(PLAIN_CALL, "k", 1, not_called, verify=world.received) == "first"
    assert len(world.calls()) == 1


def test_who_cannot_tell_leaves_it_in_doubt(world: World) -> None:
    log = world.log()
    with pytest.raises(OperationFailedError):
        log.run(PLAIN_CALL, "k", 1, lambda _: raising(TimeoutError("no answer")))
    world.clock.forward(timedelta(seconds=2))

    with pytest.raises(OperationFailedError, match="remote is down"):
        log.run(PLAIN_CALL, "k", 1, not_called, verify=lambda _: raising(OSError("remote is down")))  # type: ignore[arg-type,return-value]

    assert [state.in_doubt for state in log.states(["k"])] == [True]
    assert world.outcomes() == ["UNKNOWN", "UNKNOWN"]


def test_patience_waits_for_the_back_off_and_gives_up_when_the_budget_is_spent(
    world: World,
) -> None:
    log = world.log()

    with pytest.raises(OperationFailedError, match="no other may start"):
        log.run(
            CALL, "k", 1, lambda _: raising(NotAppliedError("no")), patience=timedelta(minutes=5)
        )

    assert world.clock.waits == [1, 2, 4, 8]
    assert world.outcomes() == ["FAILED"] * 5
    with pytest.raises(BudgetSpentError, match="the last said: no"):
        log.run(CALL, "k", 1, not_called)


def test_a_back_off_longer_than_the_patience_is_told(world: World) -> None:
    log = world.log()
    with pytest.raises(OperationFailedError) as failed:
        log.run(
            CALL, "k", 1, lambda _: raising(NotAppliedError("no")), patience=timedelta(seconds=2)
        )

    assert world.clock.waits == [1]
    assert failed.value.retry_at == NOW + timedelta(seconds=3)
    with pytest.raises(BusyError) as busy:
        log.run(CALL, "k", 1, not_called)
    assert busy.value.retry_after == timedelta(seconds=2)


def test_a_policy_that_sees_a_final_reason_stops_at_once(world: World) -> None:
    def is_final(failed: FailedAttempt) -> bool:
        return failed.error_type == "NotAppliedError" and failed.error_message == "no such day"

    picky = replace(CALL, policy=Policy(is_final=is_final))
    with pytest.raises(OperationFailedError, match="no other may start"):
        world.log().run(picky, "k", 1, lambda _: raising(NotAppliedError("no such day")))

    with pytest.raises(BudgetSpentError, match="1 attempts"):
        world.log().run(picky, "k", 1, not_called)


def test_an_attempt_that_tried_nothing_gives_its_share_of_the_budget_back(world: World) -> None:
    twice = replace(FILE, policy=Policy(max_attempts=2))
    log = world.log()

    for _ in range(4):
        claim = log.claim_many(twice, {"k": 1})["k"]
        assert isinstance(claim, Claimed)
        retries = log.fail_many([claim.attempt], SourceNotReadyError("not yet"), is_spent=False)
        assert list(retries.values()) != [None]
        world.clock.forward(timedelta(seconds=5))

    # Numbers only grow, whatever the budget does.
    assert log.run(twice, "k", 1, lambda attempt: attempt.number) == 5


def test_an_interrupt_leaves_nothing_at_work(world: World) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.log().run(CALL, "k", 1, lambda _: raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        world.log().run_transaction(WRITE, "w", 1, lambda *_: raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt), world.log().transaction(WRITE, "t", 1):
        raise KeyboardInterrupt

    assert world.outcomes() == ["UNKNOWN"]
    assert world.outcomes("w") == world.outcomes("t") == ["FAILED"]


def test_an_error_in_the_body_of_a_transaction_rolls_back_and_is_raised_itself(
    world: World,
) -> None:
    def body() -> None:
        with world.log().transaction(WRITE, "k", 1) as work:
            work.connection.execute("INSERT INTO effect VALUES ('k', 1, 'a')")  # type: ignore[union-attr]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()

    assert world.effects() == []
    assert world.outcomes() == ["FAILED"]


def test_the_effects_own_constraint_is_the_second_line_and_names_the_first_owner(
    world: World,
) -> None:
    world.rows("CREATE UNIQUE INDEX one_effect ON effect (key)")
    log = world.log()
    log.run_transaction(WRITE, "k", 1, writes("a"))
    log.reopen(WRITE, {"k": 1}, reason="by mistake")

    with pytest.raises(OperationFailedError) as failed:
        log.run_transaction(WRITE, "k", 1, writes("b"))

    assert isinstance(failed.value.__cause__, DuplicateEffectError)
    said = str(failed.value)
    assert "attempt 2 of write k: effect refused it by one_effect: Key (key)=(k) already" in said
    assert "; attempt 1 by first completed at 2013-08-04 01:00:00+00:00" in said
    assert world.effects() == [("k", 1, "a")]


def test_attempts_at_two_operations_in_one_call_are_refused(world: World) -> None:
    log = world.log()
    claims = [log.claim_many(operation, {"k": 1})["k"] for operation in (CALL, FILE)]
    one, other = (claim.attempt for claim in claims if isinstance(claim, Claimed))

    with pytest.raises(OperationError, match="call and file in one call"):
        log.complete_many({one: "one", other: "other"})

    assert world.outcomes() == ["RUNNING", "RUNNING"]


def test_of_two_attempts_at_one_key_in_one_call_only_the_owner_completes(world: World) -> None:
    log = world.log()
    first = log.claim_many(CALL, {"k": 1})["k"]
    world.clock.forward(AFTER_THE_LEASE)
    second = log.claim_many(CALL, {"k": 1})["k"]
    assert isinstance(first, Claimed)
    assert isinstance(second, Claimed)

    assert log.complete_many({second.attempt: "new", first.attempt: "old"}) == [first.attempt]
    assert world.outcomes() == ["FENCED", "SUCCEEDED"]


def test_a_write_needs_a_transaction_and_nothing_else_has_one(world: World) -> None:
    with pytest.raises(OperationError, match="use run_transaction"):
        world.log().run(WRITE, "k", 1, not_called)
    with pytest.raises(OperationError, match="use run"):
        world.log().run_transaction(CALL, "k", 1, not_called)


def test_a_transaction_inside_a_transaction_of_the_same_thread_has_its_own(world: World) -> None:
    log = world.log()

    def write(attempt: Attempt, connection: psycopg.Connection) -> Json:
        log.run_transaction(WRITE, "inner", 1, writes("inner"))
        return writes("outer")(attempt, connection)

    assert log.run_transaction(WRITE, "outer", 1, write) == "outer"
    assert world.effects() == [("inner", 1, "inner"), ("outer", 1, "outer")]
