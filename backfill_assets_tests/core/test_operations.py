"""Names that never collide, waits that grow and are bounded, policies that make sense."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.errors import BusyError, OperationError, OperationFailedError
from backfill_assets.core.operations import Attempt, Kind, Operation, Policy, joined

NOW = datetime(2013, 8, 4, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PARTS = st.lists(st.text(max_size=6) | st.text("a:%2", max_size=6), min_size=1, max_size=3)


def an_attempt(name: str, key: str, generation: int = 1) -> Attempt:
    return Attempt(Operation(name=name, kind=Kind.REMOTE), key, 1, generation, 1, False, NOW)  # noqa: FBT003


@given(PARTS, PARTS)
def test_a_joined_name_is_printable_ascii_and_tells_its_parts(
    one: list[str], other: list[str]
) -> None:
    assert (joined(*one) == joined(*other)) == (one == other)
    assert joined(*one).isascii()
    assert joined(*one).isprintable()
    assert '"' not in joined(*one)


def test_a_remote_key_is_readable_and_tells_generations_from_keys() -> None:
    assert an_attempt("notify", "2013-08-03|JFK").remote_key == "notify:2013-08-03|JFK"
    assert an_attempt("notify", "x", 2).remote_key == "notify:x:2"
    assert an_attempt("notify", "x:2").remote_key == "notify:x%3A2"
    assert an_attempt("notify", "Málaga").remote_key == "notify:M%C3%A1laga"


def test_a_remote_key_is_the_same_in_every_attempt() -> None:
    later = Attempt(Operation(name="a", kind=Kind.REMOTE), "k", 9, 1, 3, True, NOW + SECOND)  # noqa: FBT003
    assert an_attempt("a", "k").remote_key == later.remote_key == "a:k"


def test_waits_double_up_to_the_longest() -> None:
    policy = Policy(first_wait=SECOND, longest_wait=10 * SECOND, jitter=0)
    waits = [policy.wait_after(n, 0.5) for n in range(1, 7)]
    assert waits == [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND, 10 * SECOND, 10 * SECOND]


@pytest.mark.parametrize("first", [timedelta(0), timedelta(hours=1), timedelta(days=9)])
def test_the_wait_after_very_many_attempts_is_the_longest_or_none(first: timedelta) -> None:
    policy = Policy(first_wait=first, longest_wait=timedelta(days=10), jitter=0)
    assert policy.wait_after(10**9, 0) == (timedelta(days=10) if first else timedelta(0))


def test_jitter_shortens_a_wait_by_its_share() -> None:
    policy = Policy(first_wait=10 * SECOND, jitter=0.2)
    assert policy.wait_after(1, 0) == 10 * SECOND
    assert policy.wait_after(1, 1) == 8 * SECOND


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_attempts": 0}, "give 1 or more, or None"),
        ({"lease": timedelta(0)}, "a lease is more than zero"),
        ({"first_wait": -SECOND}, "a wait zero or more"),
        ({"longest_wait": -SECOND}, "give zero or more"),
        ({"jitter": 1.5}, "a share from 0 to 1"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(OperationError, match=message):
        Policy(**wrong)  # type: ignore[arg-type]


def test_only_a_remote_deduplicates_and_only_safe_kinds_are_repeated_in_doubt() -> None:
    with pytest.raises(OperationError, match="only REMOTE ones"):
        Operation(name="a", kind=Kind.ARTIFACT, is_deduplicated=True)
    with pytest.raises(OperationError, match="without blanks"):
        Operation(name=" a", kind=Kind.REMOTE)
    assert {kind.value: Operation(name="a", kind=kind).may_repeat_in_doubt for kind in Kind} == {
        "TRANSACTIONAL": True,
        "ARTIFACT": True,
        "REMOTE": False,
        "IRREVERSIBLE": False,
    }
    assert Operation(name="a", kind=Kind.REMOTE, is_deduplicated=True).may_repeat_in_doubt


def test_errors_cross_processes_whole() -> None:
    busy = pickle.loads(pickle.dumps(BusyError("busy", SECOND)))  # noqa: S301
    failed = pickle.loads(pickle.dumps(OperationFailedError("failed", NOW)))  # noqa: S301
    assert (str(busy), busy.retry_after) == ("busy", SECOND)
    assert (str(failed), failed.retry_at) == ("failed", NOW)
