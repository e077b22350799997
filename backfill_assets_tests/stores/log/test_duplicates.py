"""What a duplicate is told, and that being told changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import (
    BusyError,
    KeyReusedError,
    NotAppliedError,
    OperationFailedError,
    SealedError,
)
from backfill_assets.core.operations import Busy, Claimed, Done, Operation, Refused
from backfill_assets_tests.stores.log.world import (
    CALL,
    FILE,
    LEASE,
    PAY,
    PLAIN_CALL,
    WRITE,
    not_called,
    writes,
)

if TYPE_CHECKING:
    from backfill_assets.core.operations import Attempt, Json
    from backfill_assets_tests.stores.log.world import World

KINDS = [FILE, CALL, PLAIN_CALL, PAY]


@pytest.mark.parametrize("operation", KINDS, ids=lambda operation: operation.name)
@pytest.mark.parametrize("result", [None, 0, "", [], False, {"a": [1.5, "é", 1e23]}, -0.0])
def test_a_duplicate_gets_the_stored_result_and_nothing_is_done(
    world: World, operation: Operation, result: Json
) -> None:
    first = world.log().run(operation, "k", {"day": 1}, lambda _: result)
    again = world.log("second").run(operation, "k", {"day": 1}, not_called)

    assert repr(first) == repr(again) == repr(result)
    assert world.outcomes() == ["SUCCEEDED"]


def test_a_duplicate_of_a_transaction_gets_the_stored_result(world: World) -> None:
    log = world.log()
    assert log.run_transaction(WRITE, "k", 1, writes("a")) == "a"

    assert log.run_transaction(WRITE, "k", 1, not_called) == "a"
    with log.transaction(WRITE, "k", 1) as work:
        assert work == Done("a", 1)
    assert world.effects() == [("k", 1, "a")]


def test_the_first_call_returns_what_a_duplicate_gets(world: World) -> None:
    given = {3: (1, 2)}

    first = world.log().run(CALL, "k", None, lambda _: given)  # type: ignore[arg-type,return-value]

    assert first == {"3": [1, 2]}
    assert world.log().run(CALL, "k", None, not_called) == first


def test_a_duplicate_of_what_is_at_work_is_told_when_to_come_again(world: World) -> None:
    log = world.log()

    def act(_: Attempt) -> Json:
        before = world.row()
        world.clock.forward(timedelta(seconds=20))
        with pytest.raises(BusyError, match="first's") as busy:
            world.log("second").run(CALL, "k", 1, not_called)
        assert busy.value.retry_after == timedelta(seconds=40)
        assert busy.value.retry_after <= LEASE
        assert world.row() == before
        return "done"

    assert log.run(CALL, "k", 1, act) == "done"
    assert world.outcomes() == ["SUCCEEDED"]


def test_a_key_with_another_payload_is_refused_while_at_work_after_failing_and_when_done(
    world: World,
) -> None:
    log, other = world.log(), world.log("second")

    def refused() -> None:
        before = world.row()
        with pytest.raises(KeyReusedError, match="another payload"):
            other.run(CALL, "k", {"day": 2}, not_called)
        # Saying that an attempt is disproved gives no right to another's row.
        answers = other.claim_many(CALL, {"k": {"day": 2}}, disproved={"k": 1})
        assert isinstance(answers["k"], Refused)
        assert world.row() == before

    def act_and_fail(_: Attempt) -> Json:
        refused()
        raise NotAppliedError("no")

    with pytest.raises(OperationFailedError):
        log.run(CALL, "k", {"day": 1}, act_and_fail)
    refused()
    world.clock.forward(timedelta(seconds=2))
    refused()
    assert log.run(CALL, "k", {"day": 1}, lambda _: "done") == "done"
    refused()


def test_a_key_under_another_operation_is_independent(world: World) -> None:
    log = world.log()
    assert log.run(CALL, "k", 1, lambda _: "called") == "called"

    assert log.run(FILE, "k", 2, lambda _: "written") == "written"
    assert [trail.state.operation for trail in log.trail("k")] == ["call", "file"]


def test_a_batch_gives_each_key_its_own_answer(world: World) -> None:
    log, other = world.log(), world.log("second")
    log.run(CALL, "done", 1, lambda _: "result")
    log.claim_many(CALL, {"busy": 1})
    log.claim_many(CALL, {"foreign": 2})
    log.seal(CALL, "sealed", reason="undone")
    before = [world.row(key) for key in ("done", "busy", "foreign", "sealed")]

    answers = other.claim_many(CALL, dict.fromkeys(("sealed", "new", "foreign", "busy", "done"), 1))

    assert answers["done"] == Done("result", 1)
    assert answers["busy"] == Busy(LEASE, "first")
    assert isinstance(answers["foreign"], Refused)
    assert isinstance(answers["foreign"].error, KeyReusedError)
    assert isinstance(answers["sealed"], Refused)
    assert isinstance(answers["sealed"].error, SealedError)
    assert isinstance(answers["new"], Claimed)
    assert answers["new"].attempt.number == 1
    assert [world.row(key) for key in ("done", "busy", "foreign", "sealed")] == before


def test_no_keys_are_no_statement(world: World) -> None:
    log = world.log(url="postgresql://nobody@127.0.0.1:1/nothing")

    assert log.claim_many(CALL, {}) == {}
    assert log.complete_many({}) == []
    assert log.renew([]) == []
    with log.kept_alive([]):
        pass
