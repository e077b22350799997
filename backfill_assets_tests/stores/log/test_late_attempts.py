"""An attempt that is stopped, replaced, and comes back: it changes nothing, and is written down.

The process is stopped by the system, its lease has run out by the clock of whoever takes over.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import (
    NotAppliedError,
    OperationFailedError,
    OutcomeUnknownError,
    StaleAttemptError,
)
from backfill_assets.core.operations import Claimed, Found, Policy
from backfill_assets.stores.files.attempts import AttemptFolder
from backfill_assets_tests.stores.children import child, in_child
from backfill_assets_tests.stores.log.world import (
    AFTER_THE_LEASE,
    CALL,
    FILE,
    PAY,
    PLAIN_CALL,
    WRITE,
    not_called,
    stop,
    writes,
)
from backfill_assets_tests.stores.postgres.processes_of_tests import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    from backfill_assets.core.operations import Attempt, Json, Operation
    from backfill_assets.stores.log.log import IdempotencyLog
    from backfill_assets_tests.stores.log.world import World

EARLY = "738123cec32530fb4e99dcaf1a27adfaaddedca59c05832e1a4abd38581cee9d"  # of "early", as JSON
LATE = "02921de0ba559c7c64e594dc948ea39c48ff4f2642be7072cede26f9b6fe3ffd"  # of "late"
SHORT = timedelta(milliseconds=200)  # a lease that really runs out


def call_and_stop(world: World, operation: Operation = CALL, result: Json = "late") -> Json:
    """Be a first attempt that reaches the remote, and is stopped before it hears of it."""

    def act(attempt: Attempt) -> Json:
        world.receive(attempt, "first")
        stop()
        return result

    return world.log("first").run(operation, "k", 1, act)


def claimed(log: IdempotencyLog, operation: Operation) -> Attempt:
    """Return a new attempt."""
    claim = log.claim_many(operation, {"k": 1})["k"]
    assert isinstance(claim, Claimed)
    return claim.attempt


# Where the process of a transaction is stopped.


def before_the_transaction(log: IdempotencyLog, operation: Operation) -> Json:
    attempt = claimed(log, operation)
    stop()
    with log.writing(attempt) as work:
        work.result = writes("late")(attempt, work.connection)
    return work.result


def inside_the_transaction(log: IdempotencyLog, operation: Operation) -> Json:
    def write(attempt: Attempt, connection: psycopg.Connection) -> Json:
        result = writes("late")(attempt, connection)
        stop()
        return result

    return log.run_transaction(operation, "k", 1, write)


def before_the_commit(log: IdempotencyLog, operation: Operation) -> Json:
    complete = log._ledger.complete  # there is no other place between it and the commit

    def complete_and_stop(*arguments: object) -> object:
        owned = complete(*arguments)  # type: ignore[arg-type]
        stop()
        return owned

    log._ledger.complete = complete_and_stop  # type: ignore[method-assign,assignment]
    return log.run_transaction(operation, "k", 1, writes("late"))


@pytest.mark.parametrize("where", [before_the_transaction, inside_the_transaction])
def test_a_late_transaction_leaves_no_row_and_is_written_down_with_what_it_wanted(
    world: World, where: Callable[[IdempotencyLog, Operation], Json]
) -> None:
    with child(lambda: where(world.log("first"), WRITE)) as late:
        late.wait_until_stopped()
        assert world.outcomes() == ["RUNNING"]
        retry = world.log("second", after=AFTER_THE_LEASE)
        assert retry.run_transaction(WRITE, "k", 1, writes("early")) == "early"
        before = world.row()
        late.go_on()
        with pytest.raises(StaleAttemptError, match="too late"):
            late.answer()

    assert world.row() == before
    assert world.effects() == [("k", 2, "early")]
    assert world.outcomes() == ["FENCED", "SUCCEEDED"]
    assert world.digests() == [LATE, EARLY]
    (alert,) = world.alerts()
    assert alert.dedup_key == "late_result:write:k:1"
    assert alert.body == {
        "key": "k",
        "operation": "write",
        "late_attempt": 1,
        "late_digest": LATE,
        "committed_attempt": 2,
        "committed_digest": EARLY,
    }


@pytest.mark.parametrize("where", [inside_the_transaction, before_the_commit])
def test_a_transaction_that_was_stopped_holds_no_row_for_longer_than_its_lease(
    world: World, where: Callable[[IdempotencyLog, Operation], Json]
) -> None:
    operation = replace(WRITE, policy=Policy(lease=SHORT))

    def first() -> list[str]:
        with pytest.raises(StaleAttemptError) as error:
            where(world.log("first"), operation)
        return causes_of(error.value)

    with child(first) as late:
        late.wait_until_stopped()
        wait_until(lambda: not sessions_in_a_transaction(world))
        retry = world.log("second", after=AFTER_THE_LEASE)
        # What its act wrote is rolled back already; and where it was about to commit, the row of
        # the operation was locked until now.
        assert retry.run_transaction(operation, "k", 1, writes("early")) == "early"
        late.go_on()
        assert "IdleInTransactionSessionTimeout" in late.answer()

    assert world.effects() == [("k", 2, "early")]
    assert world.outcomes() == ["FENCED", "SUCCEEDED"]
    assert world.digests() == [LATE, EARLY]


def causes_of(error: BaseException | None) -> list[str]:
    """Return the classes of an error and of what it came from."""
    return [] if error is None else [type(error).__name__, *causes_of(error.__cause__)]


def sessions_in_a_transaction(world: World) -> list[tuple[object, ...]]:
    return world.rows(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND state LIKE %s",
        "idle in transaction%",
    )


@pytest.mark.parametrize("operation", [CALL, PLAIN_CALL], ids=["deduplicated", "verified"])
def test_a_late_call_is_fenced_and_the_remote_is_reached_under_one_key(
    world: World, operation: Operation
) -> None:
    def retried(attempt: Attempt) -> Json:
        world.receive(attempt, "second")
        return "early"

    verify = world.received if operation is PLAIN_CALL else None
    with child(partial(call_and_stop, world, operation)) as late:
        late.wait_until_stopped()
        assert world.calls() == [(f"{operation.name}:k", "first")]
        retry = world.log("second", after=AFTER_THE_LEASE)
        result = retry.run(operation, "k", 1, retried, verify=verify)
        before = world.row()
        late.go_on()
        with pytest.raises(StaleAttemptError):
            late.answer()

    # The one that can be asked was not called again; the one that cannot got the same key.
    assert result == ("first" if verify else "early")
    assert {key for key, _ in world.calls()} == {f"{operation.name}:k"}
    assert len(world.calls()) == (1 if verify else 2)
    assert world.row() == before
    assert world.outcomes() == ["FENCED", "SUCCEEDED"]
    assert world.digests()[0] == LATE
    assert [alert.dedup_key for alert in world.alerts()] == [f"late_result:{operation.name}:k:1"]


class Publisher:
    """Publishes one file under the log, as attempt directories fence it."""

    def __init__(self, root: Path) -> None:
        self.target = root / "target"
        self.folder = AttemptFolder(root, longest_run=timedelta(hours=1))

    def publish(self, attempt: Attempt, content: str, before_link: Callable[[], None]) -> Json:
        with self.folder.open(f"{attempt.key}.{attempt.number}") as directory:
            (directory / "file").write_text(content)
            before_link()
            try:
                os.link(directory / "file", self.target)
            except FileNotFoundError as error:
                late = StaleAttemptError(f"{attempt} was revoked")
                late.wanted = content
                raise late from error
        return content

    def look(self, attempt: Attempt) -> Found | None:
        """Take the directories of earlier attempts away; only then look at the target."""
        self.folder.revoke(f"{attempt.key}.")
        return Found(self.target.read_text()) if self.target.exists() else None


def test_a_late_file_is_not_published_and_its_attempt_is_fenced(
    world: World, tmp_path: Path
) -> None:
    publisher = Publisher(tmp_path)

    def first() -> Json:
        return world.log("first").run(FILE, "k", 1, lambda a: publisher.publish(a, "late", stop))

    with child(first) as late:
        late.wait_until_stopped()
        assert not publisher.target.exists()
        retry = world.log("second", after=AFTER_THE_LEASE)
        result = retry.run(
            FILE,
            "k",
            1,
            lambda a: publisher.publish(a, "early", lambda: None),
            verify=publisher.look,
        )
        before = world.row()
        late.go_on()
        with pytest.raises(StaleAttemptError):
            late.answer()

    assert result == publisher.target.read_text() == "early"
    assert world.row() == before
    assert world.outcomes() == ["FENCED", "SUCCEEDED"]
    assert world.digests() == [LATE, EARLY]
    assert [alert.dedup_key for alert in world.alerts()] == ["late_result:file:k:1"]


def test_a_late_result_that_comes_before_the_retry_ends_raises_the_alert_as_well(
    world: World,
) -> None:
    with child(partial(call_and_stop, world)) as late:
        late.wait_until_stopped()

        def act(_: Attempt) -> Json:
            late.go_on()
            with pytest.raises(StaleAttemptError):
                late.answer()
            assert world.outcomes() == ["FENCED", "RUNNING"]
            assert world.alerts() == []
            return "early"

        world.log("second", after=AFTER_THE_LEASE).run(CALL, "k", 1, act)

    (alert,) = world.alerts()
    assert alert.dedup_key == "late_result:call:k:1"
    assert alert.body["late_digest"] == LATE  # type: ignore[index,call-overload]
    assert alert.body["committed_digest"] == EARLY  # type: ignore[index,call-overload]


def test_a_late_result_that_is_the_same_raises_no_alert(world: World) -> None:
    with child(partial(call_and_stop, world, CALL, "early")) as late:
        late.wait_until_stopped()
        world.log("second", after=AFTER_THE_LEASE).run(CALL, "k", 1, lambda _: "early")
        late.go_on()
        with pytest.raises(StaleAttemptError):
            late.answer()

    assert world.outcomes() == ["FENCED", "SUCCEEDED"]
    assert world.alerts() == []
    (found,) = world.log().late_attempts(["call"])
    assert (found.attempt, found.worker, found.digest) == (1, "first", EARLY)
    assert (found.winner, found.winner_digest, found.differs) == (2, EARLY, False)


def test_a_late_result_of_an_earlier_generation_is_not_compared_with_a_later_one(
    world: World,
) -> None:
    with child(partial(call_and_stop, world, CALL, "early")) as late:
        late.wait_until_stopped()
        log = world.log("second", after=AFTER_THE_LEASE)
        log.run(CALL, "k", 1, lambda _: "early")
        log.reopen(CALL, {"k": 1}, reason="restated")
        assert log.run(CALL, "k", 1, lambda _: "restated") == "restated"
        late.go_on()
        with pytest.raises(StaleAttemptError):
            late.answer()

    assert world.outcomes() == ["FENCED", "SUCCEEDED", "SUCCEEDED"]
    assert world.alerts() == []


def test_a_late_first_attempt_is_fenced_also_where_the_retry_failed(world: World) -> None:
    def fails(_: Attempt) -> Json:
        raise NotAppliedError("refused by the remote")

    with child(partial(call_and_stop, world)) as late:
        late.wait_until_stopped()
        with pytest.raises(OperationFailedError):
            world.log("second", after=AFTER_THE_LEASE).run(CALL, "k", 1, fails)
        before = world.row()
        late.go_on()
        with pytest.raises(StaleAttemptError):
            late.answer()

    assert world.row() == before
    assert world.outcomes() == ["FENCED", "FAILED"]
    assert world.digests() == [LATE, None]
    (found,) = world.log().late_attempts(["call"])
    assert (found.winner, found.winner_digest) == (None, None)


def test_a_slow_attempt_that_nobody_replaced_completes_after_its_lease(world: World) -> None:
    def slow() -> Json:
        def act(_: Attempt) -> Json:
            stop()
            world.clock.forward(AFTER_THE_LEASE)
            return "late"

        return world.log("first").run(CALL, "k", 1, act)

    with child(slow) as late:
        late.wait_until_stopped()
        late.go_on()
        assert late.answer() == "late"

    assert world.outcomes() == ["SUCCEEDED"]
    assert world.log("second").run(CALL, "k", 1, not_called) == "late"


@pytest.mark.parametrize("is_supervised", [False, True], ids=["replaced", "supervised"])
def test_a_late_failure_changes_nothing_and_its_reason_is_kept(
    world: World, *, is_supervised: bool
) -> None:
    def fails_late() -> Json:
        def act(_: Attempt) -> Json:
            stop()
            raise NotAppliedError("it was never sent")

        return world.log("first").run(CALL, "k", 1, act)

    with child(fails_late) as late:
        late.wait_until_stopped()
        other = world.log("second", after=AFTER_THE_LEASE)
        if is_supervised:
            assert other.supervise() == [("k", "call")]
        else:
            assert other.run(CALL, "k", 1, lambda _: "early") == "early"
        before = world.row()
        late.go_on()
        with pytest.raises(StaleAttemptError):
            late.answer()

    assert world.row() == before
    assert world.outcomes()[0] == "FENCED"
    reason = world.log().trail("k")[0].attempts[0]
    assert (reason.error_type, reason.error_message) == ("NotAppliedError", "it was never sent")


def test_a_successor_under_the_same_worker_name_fences_the_first(world: World) -> None:
    with child(partial(call_and_stop, world)) as late:
        late.wait_until_stopped()
        successor = world.log("first", after=AFTER_THE_LEASE)
        assert successor.run(CALL, "k", 1, lambda _: "early") == "early"
        late.go_on()
        with pytest.raises(StaleAttemptError):
            late.answer()

    assert world.digests() == [LATE, EARLY]
    assert world.log().run(CALL, "k", 1, not_called) == "early"


@pytest.mark.parametrize("hours", [1, -1], ids=["fast", "slow"])
def test_a_clock_that_is_an_hour_off_makes_a_takeover_early_or_late_and_no_effect_double(
    world: World, hours: int
) -> None:
    off = timedelta(hours=hours)
    # Where it is slow, its own lease has run out before it began, for everybody else.
    first_is_off, second_is_off = (timedelta(0), off) if hours > 0 else (off, timedelta(0))

    def first() -> Json:
        return inside_the_transaction(world.log("first", after=first_is_off), WRITE)

    with child(first) as late:
        late.wait_until_stopped()
        other = world.log("second", after=second_is_off)
        assert other.run_transaction(WRITE, "k", 1, writes("early")) == "early"
        late.go_on()
        with pytest.raises(StaleAttemptError):
            late.answer()

    assert world.effects() == [("k", 2, "early")]
    assert world.outcomes() == ["FENCED", "SUCCEEDED"]


@pytest.mark.parametrize("operation", [PLAIN_CALL, PAY], ids=lambda operation: operation.name)
def test_what_cannot_be_asked_about_is_not_repeated_while_it_may_still_land(
    world: World, operation: Operation
) -> None:
    with child(partial(call_and_stop, world, operation)) as late:
        late.wait_until_stopped()
        other = world.log("second", after=AFTER_THE_LEASE)
        for _ in range(2):
            with pytest.raises(OutcomeUnknownError):
                other.run(operation, "k", 1, not_called)
        late.go_on()
        with pytest.raises(StaleAttemptError):
            late.answer()

    assert world.calls() == [(f"{operation.name}:k", "first")]
    assert world.outcomes() == ["FENCED", "FAILED"]
    assert [alert.dedup_key for alert in world.alerts()] == [f"needs_person:{operation.name}:k:2"]


def test_an_attempt_that_completed_cannot_write_its_effect_again(world: World) -> None:
    log = world.log()
    attempt = claimed(log, WRITE)
    with log.writing(attempt) as work:
        work.result = writes("early")(attempt, work.connection)

    with pytest.raises(StaleAttemptError), log.writing(attempt) as work:
        work.result = writes("again")(attempt, work.connection)

    assert world.effects() == [("k", 1, "early")]
    assert world.outcomes() == ["SUCCEEDED"]


def test_a_fenced_attempt_settles_no_doubt_and_does_not_act(world: World) -> None:
    log = world.log("first")
    in_child(lambda: claimed(world.log("dead"), PLAIN_CALL))
    world.clock.forward(AFTER_THE_LEASE)

    def verify(_: Attempt) -> Found | None:
        log.seal(PLAIN_CALL, "k", reason="undone meanwhile")

    with pytest.raises(StaleAttemptError):
        log.run(PLAIN_CALL, "k", 1, not_called, verify=verify)  # type: ignore[arg-type]

    (state,) = log.states(["k"])
    assert state.in_doubt
    assert world.outcomes() == ["UNKNOWN", "FENCED"]
