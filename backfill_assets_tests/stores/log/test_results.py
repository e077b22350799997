"""Results that can be stored come back as they were; the others end the attempt."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_assets.core.errors import (
    BudgetSpentError,
    OperationError,
    OperationFailedError,
    OutcomeUnknownError,
    ResultRefusedError,
)
from backfill_assets.core.operations import Claimed, Done
from backfill_assets.stores.log.results import MAX_RESULT_BYTES, as_stored
from backfill_assets_tests.stores.log.world import CALL, FILE, PAY, WRITE, not_called

if TYPE_CHECKING:
    from backfill_assets.core.operations import Attempt
    from backfill_assets_tests.stores.log.world import World

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
EXAMPLES = itertools.count()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
UNSTORABLE = {
    "an object": object(),
    "not a number": float("nan"),
    "a zero character": "a\0b",
    "half a character": "\ud800",
    "too large": "x" * (MAX_RESULT_BYTES + 1),
    "too large in bytes": "é" * (MAX_RESULT_BYTES // 2 + 1),
}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(results=st.lists(JSON, min_size=20, max_size=20))
def test_every_result_comes_back_to_the_letter(world: World, results: list[Any]) -> None:
    log = world.log()
    example = next(EXAMPLES)
    given = {f"{example}, {number}": result for number, result in enumerate(results)}
    claims = log.claim_many(FILE, dict.fromkeys(given))
    attempts = {key: claim.attempt for key, claim in claims.items() if isinstance(claim, Claimed)}

    assert log.complete_many({attempts[key]: result for key, result in given.items()}) == []

    answers = log.claim_many(FILE, dict.fromkeys(given))
    stored = {key: done.result for key, done in answers.items() if isinstance(done, Done)}
    assert {k: repr(v) for k, v in stored.items()} == {k: repr(as_stored(given[k])) for k in given}
    log.close()


def test_text_that_only_looks_like_a_zero_character_is_stored(world: World) -> None:
    assert world.log().run(CALL, "k", None, lambda _: "\\u0000") == "\\u0000"


@pytest.mark.parametrize("what", UNSTORABLE)
@pytest.mark.parametrize("operation", [CALL, PAY], ids=lambda operation: operation.name)
def test_a_result_that_cannot_be_stored_ends_the_attempt_which_may_have_happened(
    world: World, what: str, operation: Any
) -> None:
    log = world.log()

    with pytest.raises(ResultRefusedError):
        log.run(operation, "k", None, lambda _: UNSTORABLE[what])

    assert world.outcomes() == ["UNKNOWN"]
    assert [alert.body["key"] for alert in world.alerts("needs_person")] == ["k"]  # type: ignore[index,call-overload]
    with pytest.raises((BudgetSpentError, OutcomeUnknownError)):
        log.run(operation, "k", None, not_called)


def test_a_transaction_whose_result_cannot_be_stored_is_rolled_back(world: World) -> None:
    log = world.log()

    def write(_: Attempt, connection: Any) -> Any:
        connection.execute("INSERT INTO effect VALUES ('k', 1, 'a')")
        return object()

    with pytest.raises(ResultRefusedError):
        log.run_transaction(WRITE, "k", None, write)
    with pytest.raises(BudgetSpentError):
        log.run_transaction(WRITE, "k", None, not_called)
    with pytest.raises(ResultRefusedError), log.transaction(WRITE, "other", None) as work:
        work.result = object()  # type: ignore[assignment,union-attr]

    assert world.effects() == []
    assert world.outcomes() == world.outcomes("other") == ["FAILED"]


@pytest.mark.parametrize("error", [ResultRefusedError("inner"), OutcomeUnknownError("inner")])
def test_the_error_of_an_operation_inside_an_act_ends_the_outer_attempt(
    world: World, error: OperationError
) -> None:
    def act(_: Attempt) -> Any:
        raise error

    with pytest.raises(OperationFailedError, match="inner"):
        world.log().run(CALL, "k", None, act)

    assert world.outcomes() == ["UNKNOWN"]


def test_a_payload_that_is_no_json_is_refused_before_anything_is_written(world: World) -> None:
    with pytest.raises(ResultRefusedError):
        world.log().run(CALL, "k", object(), not_called)  # type: ignore[arg-type]

    assert world.outcomes() == []
