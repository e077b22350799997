"""Random histories on the real database: faults at any point, and everybody acting in between."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import (
    NotAppliedError,
    SagaStateError,
    SagaVersionError,
    TryAgainError,
)
from backfill_assets.core.sagas import Choice, SagaStatus
from backfill_assets_tests.stores.sagas.trip import STEPS, World

if TYPE_CHECKING:
    from collections.abc import Callable

LATE = timedelta(minutes=30)
POINTS = [f"{s}.{d}.{p}" for s in STEPS for d in ("do", "undo") for p in ("before", "after")]
HISTORIES = 25


class History:
    """One saga, with faults drawn for each point; at some points others act meanwhile."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.saga_id = f"{self.chance.choice(('trip', 'asking'))}/{seed}"
        self.happened: Counter[str] = Counter()
        self.main = world.sagas("main")
        self.depth = 0

    def play(self) -> None:
        name, _, key = self.saga_id.partition("/")
        self.world.start(self.main, name, key)
        for point in POINTS:
            self.world.hooks[point] = [
                self.fault(point) for _ in range(self.chance.choice((0, 0, 1, 3)))
            ]
        for _ in range(60):
            saga = self.main.get(self.saga_id)
            if saga.is_over:
                return
            if saga.status is SagaStatus.AWAITING_DECISION:
                self.decide(self.main)
            self.world.clock.pass_by(minutes=2)
            self.main.recover(patience=LATE)
        raise AssertionError(f"{self.saga_id} never comes to an end: {self.main.get(self.saga_id)}")

    def fault(self, point: str) -> Callable[[], object]:
        kinds = ["refused", "again", "lost", "lost"]
        if point.endswith("before"):  # a transaction that is open would keep the others waiting
            kinds += ["overtaken", "cancelled"]
        kind = self.chance.choice(kinds)

        def strike() -> None:
            self.happened[kind] += 1
            if kind == "refused" and not point.endswith("after"):
                raise NotAppliedError("no")
            if kind in ("overtaken", "cancelled"):
                self.others_act(kind)
            elif kind == "again" and not point.endswith("after"):
                raise TryAgainError("busy")
            else:
                raise TimeoutError("no answer")

        return strike

    def others_act(self, kind: str) -> None:
        if self.depth > 1:
            return
        self.depth += 1
        other = self.world.sagas(f"other {self.depth} {self.chance.random()}")
        self.world.clock.pass_by(minutes=1)
        if kind == "cancelled":
            try:
                other.cancel(self.saga_id, who="eve", why="")
            except SagaStateError:
                self.happened["was waiting already"] += 1
        other.recover(patience=LATE)
        other.close()
        self.depth -= 1

    def decide(self, sagas: Any) -> None:
        saga = sagas.get(self.saga_id)
        choice = self.chance.choice([c for c in saga.question.choices if c is not Choice.ACCEPT])
        more = {"step": "room", "arguments": {"hotel": "Savoy"}}
        is_room = "room" in [s.step.partition("@")[0] for s in saga.question.stuck]
        if choice is Choice.REPLACE and not is_room:
            choice = Choice.RETRY
        try:
            sagas.decide(
                self.saga_id,
                saga.version,
                choice,
                who="ada",
                why="",
                **(more if choice is Choice.REPLACE else {}),
            )
        except SagaVersionError:
            self.happened["was too late"] += 1
        self.happened[f"decided: {choice}"] += 1


def test_random_histories_end_with_everything_or_with_nothing(world: World) -> None:
    happened: Counter[str] = Counter()
    for seed in range(HISTORIES):
        world.execute("UPDATE seat SET holder = NULL, meal = 'none'")
        world.execute("UPDATE account SET miles = 1000")
        world.execute("DELETE FROM saga_lock")
        history = History(world, seed)
        history.play()
        saga = history.main.get(history.saga_id)
        expected = set(STEPS) if saga.status is SagaStatus.COMPLETED else set()
        assert world.applied(history.saga_id) == expected, f"seed {seed}: {saga.status}"
        assert world.effects()["miles"] == (1500 if expected else 1000), f"seed {seed}"
        happened += history.happened
        happened[str(saga.status)] += 1
        history.main.close()
    assert happened["COMPLETED"] + happened["COMPENSATED"] == HISTORIES
    for what in ("COMPLETED", "COMPENSATED", "overtaken", "cancelled", "lost", "decided: retry"):
        assert happened[what] > 3, what
