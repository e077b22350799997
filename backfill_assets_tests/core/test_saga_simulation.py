"""Ten thousand random histories of sagas, and programs that are wrong on purpose."""

from __future__ import annotations

import pytest

from backfill_assets.core import step_states
from backfill_assets.core.step_states import Effect
from backfill_assets_tests.core.saga_model import Mutation, WrongError, play

HISTORIES = range(10_000)
FEW = range(3_000)  # enough for each mutant to be caught; the seeds are those of the sound ones


def test_no_random_history_leaves_the_world_other_than_the_saga_says() -> None:
    """Kills, stops, late returns, cancels, decisions and foreign changes, in any order."""
    happened = play(HISTORIES)
    assert happened["COMPLETED"] + happened["COMPENSATED"] == 10_000
    # A simulation in which nothing went wrong would prove nothing.
    floors = {
        "COMPLETED": 2_000,
        "COMPENSATED": 2_000,
        "killed": 10_000,
        "stopped": 10_000,
        "asked": 1_000,
        "decided": 1_000,
        "replaced": 50,
        "conflict": 200,
        "late": 50,
    }
    assert {name for name, floor in floors.items() if happened[name] < floor} == set()


@pytest.mark.parametrize(
    ("mutation", "found"),
    [
        (Mutation(seals=False), "it is compensated, and {'a'} is left"),
        (Mutation(fences=False), "it is compensated, and {'a'} is left"),
        (Mutation(undoes_from_snapshot=True), "the counter shows 3; 0 and 5 of others"),
        (Mutation(alerts_in_transaction=False), "it asks, and nobody is told"),
    ],
    ids=["no seal", "no fence", "undo from a snapshot", "alert outside of the transaction"],
)
def test_a_program_that_is_wrong_in_one_place_is_caught(mutation: Mutation, found: str) -> None:
    with pytest.raises(WrongError, match=found):
        play(FEW, mutation)


def test_a_program_that_takes_unknown_for_not_applied_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def certain(_kind: object, facts: step_states.OperationFacts | None) -> Effect:
        return Effect.APPLIED if facts and facts.is_completed else Effect.NONE

    monkeypatch.setattr(step_states, "effect_of", certain)
    with pytest.raises(WrongError, match="is left"):
        play(FEW)
