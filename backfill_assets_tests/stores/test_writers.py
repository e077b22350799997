"""Two writers of one partition, one of them stopped at every call of the operating system."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import ContentConflictError
from backfill_assets_tests.stores.children import child
from backfill_assets_tests.stores.crash_points import stop_at_call, stopping_at
from backfill_assets_tests.stores.examples import (
    FLIGHTS,
    GROUP,
    JFK,
    a_store,
    contents_of,
    publish,
)

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.stores.files.local import LocalPartitionStore

FIRST, SECOND = [1, 1, 1], [2, 2]


def told(store: LocalPartitionStore, values: list[int], *, replace: bool = False) -> str:
    """Publish a partition; return what the writer was told."""
    try:
        (published,) = publish(store, [JFK], values, replace=replace)
    except ContentConflictError:
        return "refused"
    return "adopted" if published.adopted else "published"


def interleaved(
    store: LocalPartitionStore, number: int, second: list[int], *, replace: bool = False
) -> tuple[str, str, list[int]] | None:
    """Stop the first writer at its call of a number, let the second publish, let the first go on.

    Returns:
        What both were told and what was committed between, or None where the first never stopped.
    """
    with child(stopping_at(number, lambda: told(store, FIRST, replace=replace))) as first:
        is_stopped = first.stops()
        answer = told(store, second, replace=replace)
        between = contents_of(store)[str(JFK)]
        if is_stopped:
            first.go_on()
        answers = first.answer(), answer, between
    assert all(path.endswith(".parquet") for path in store.scan(FLIGHTS).strangers)
    return answers if is_stopped else None


@pytest.mark.parametrize("second", [SECOND, FIRST], ids=["other content", "same content"])
def test_of_two_writers_interleaved_at_every_call_the_first_to_commit_wins(
    memory: Path, protocol: str, second: list[int]
) -> None:
    all_told = set()
    for number in itertools.count():
        store = a_store(memory / f"store-{number}", protocol=protocol)
        store.prepare()

        answers = interleaved(store, number, second)

        if answers is None:
            break
        first_told, second_told, between = answers
        winner = FIRST if first_told == "published" else second
        assert between == winner, number
        assert contents_of(store) == {str(JFK): winner}, number
        all_told.add((first_told, second_told))
    loser = "refused" if second == SECOND else "adopted"
    assert all_told == {("published", loser), (loser, "published")}


@pytest.mark.parametrize("second", [SECOND, FIRST], ids=["other content", "same content"])
def test_two_replacements_interleaved_at_every_call_leave_the_whole_content_of_one(
    memory: Path, protocol: str, second: list[int]
) -> None:
    committed = set()
    for number in itertools.count():
        store = a_store(memory / f"store-{number}", protocol=protocol)
        publish(store, GROUP, [0])

        answers = interleaved(store, number, second, replace=True)

        if answers is None:
            break
        assert answers[2] in (FIRST, second), number
        contents = contents_of(store)
        assert contents.pop(str(JFK)) in (FIRST, second), number
        assert list(contents.values()) == [[0], [0]]
        committed.add(store.verify(JFK).rows)
    assert committed == {len(FIRST), len(second)}


@pytest.mark.usefixtures("no_links")
def test_of_two_writers_that_both_stop_with_a_claim_the_first_to_go_on_wins(memory: Path) -> None:
    store = a_store(memory / "store", protocol="marker")
    store.prepare()

    def claim_and_stop(values: list[int]) -> str:
        stop_at_call(1, "open and then", ".commit")
        return told(store, values)

    with child(lambda: claim_and_stop(FIRST)) as first:
        first.wait_until_stopped()
        with child(lambda: claim_and_stop(SECOND)) as second:
            second.wait_until_stopped()
            first.go_on()
            assert first.answer() == "published"
            assert contents_of(store) == {str(JFK): FIRST}
            second.go_on()
            assert second.answer() == "refused"

    assert contents_of(store) == {str(JFK): FIRST}


@pytest.mark.usefixtures("no_links")
def test_whoever_adopts_what_stands_leaves_the_data_of_a_replacement_under_way(
    memory: Path,
) -> None:
    store = a_store(memory / "store", protocol="marker")
    publish(store, [JFK], FIRST)

    def stop_before_the_claim() -> str:
        stop_at_call(1, "open", ".commit")
        return told(store, SECOND, replace=True)

    with child(stop_before_the_claim) as replacing:
        replacing.wait_until_stopped()
        assert told(store, FIRST) == "adopted"
        replacing.go_on()
        assert replacing.answer() == "published"

    assert contents_of(store) == {str(JFK): SECOND}
