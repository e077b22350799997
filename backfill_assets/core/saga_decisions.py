"""What is next for a saga: a pure function of its plan, what the log says, and the time.

Going forward, steps run as soon as what they come after is done. Going back, nothing can start
forward any more: every step was sealed in the transaction that turned the saga round. Then each
step that may have happened is undone, the most sensitive first, and a saga is called compensated
only when nothing of it is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from backfill_assets.core.operations import Kind
from backfill_assets.core.sagas import Choice, Direction, OnFailure, SagaStatus
from backfill_assets.core.step_states import Effect, Phase, StepState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from backfill_assets.core.saga_plans import Entry, SagaPlan


@dataclass(frozen=True, slots=True)
class Task:
    """One direction of one entry, to be run now."""

    entry: Entry
    direction: Direction

    @property
    def operation(self) -> str:
        """Its name in the idempotency log."""
        return self.entry.operation(self.direction)


@dataclass(frozen=True, slots=True)
class Stuck:
    """An operation that needs a person, and why."""

    step: str
    operation: str
    reason: str


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked.

    Attributes:
        reason: In a sentence.
        stuck: The operations that cannot go on by themselves.
        choices: What may be decided.
    """

    reason: str
    stuck: tuple[Stuck, ...]
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Act:
    """Run these; they do not depend on each other."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done before this instant."""

    until: datetime


@dataclass(frozen=True, slots=True)
class TurnBack:
    """Seal every step and undo what may have happened."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Wait for a person."""

    question: Question


@dataclass(frozen=True, slots=True)
class Finish:
    """The saga is at its end."""

    status: SagaStatus


Next = Act | Wait | TurnBack | Ask | Finish


def next_of(plan: SagaPlan, status: SagaStatus, states: Sequence[StepState], now: datetime) -> Next:
    """Return what is next for a saga that is RUNNING or COMPENSATING.

    Args:
        states: Of every entry of the plan, as ``step_states`` gives them.
    """
    if status is SagaStatus.RUNNING:
        return _Forward(plan, states, now).next()
    return _Back(plan, states, now).next()


def is_past_pivot(states: Iterable[StepState]) -> bool:
    """Return whether an irreversible step may have happened: the way back is closed."""
    return any(
        s.entry.step.kind is Kind.IRREVERSIBLE and s.effect is not Effect.NONE for s in states
    )


def still_applied(states: Iterable[StepState]) -> list[StepState]:
    """Return the entries of which something is, or may be, left in the world."""
    return [s for s in states if s.effect is not Effect.NONE and s.undo is not Phase.DONE]


@dataclass(frozen=True, slots=True)
class _Forward:
    plan: SagaPlan
    states: Sequence[StepState]
    now: datetime

    def next(self) -> Next:
        current = [s for s in self.states if s.entry in self.plan.entries]
        old = [s for s in self.states if s.entry in self.plan.superseded and not s.is_clean]
        failed = [s for s in current if s.do in (Phase.STUCK, Phase.SEALED)]
        failed_undo = [s for s in old if s.undo is Phase.STUCK]
        if failed or failed_undo:
            return self._failed(failed, failed_undo)
        if all(s.do is Phase.DONE for s in current) and not old:
            return Finish(SagaStatus.COMPLETED)
        done = {s.entry.step.name for s in current if s.do is Phase.DONE}
        unclean = {s.entry.step.name for s in old}
        # What a person replaced is taken back first: both must not stand at once.
        waiting = [
            (s, Direction.DO)
            for s in current
            if done.issuperset(s.entry.step.after) and s.entry.step.name not in unclean
        ]
        undoing = [(s, Direction.UNDO) for s in old]
        return _act_or_wait(chain(undoing, waiting), self.now)

    def _failed(self, failed: Sequence[StepState], undo: Sequence[StepState]) -> Next:
        stuck = (
            *(_stuck(s, Direction.DO) for s in failed),
            *(_stuck(s, Direction.UNDO) for s in undo),
        )
        reason = "; ".join(f"{one.operation}: {one.reason}" for one in stuck)
        is_past = is_past_pivot(self.states)
        if not is_past and any(self._compensates(s) for s in failed):
            return TurnBack(reason)
        choices = [Choice.RETRY, Choice.ACCEPT]
        if any(s.entry.step.kind is not Kind.IRREVERSIBLE for s in failed):
            choices.insert(1, Choice.REPLACE)
        if not is_past:
            choices.append(Choice.COMPENSATE)
        return Ask(Question(reason, stuck, tuple(choices)))

    def _compensates(self, state: StepState) -> bool:
        return self.plan.definition.on_failure_of(state.entry.step) is OnFailure.COMPENSATE


@dataclass(frozen=True, slots=True)
class _Back:
    plan: SagaPlan
    states: Sequence[StepState]
    now: datetime

    def next(self) -> Next:
        open_ones = [s for s in self.states if not s.is_clean]
        if not open_ones:
            return Finish(SagaStatus.COMPENSATED)
        blocked = self._blocked(open_ones)
        ready = [s for s in open_ones if s not in blocked and not self._must_wait(s, blocked)]
        if ready:
            return _act_or_wait([(s, Direction.UNDO) for s in ready], self.now)
        stuck = tuple(_stuck(s, Direction.UNDO) for s in open_ones if s.undo is Phase.STUCK)
        reason = "; ".join(f"{one.operation}: {one.reason}" for one in stuck)
        return Ask(Question(reason, stuck, (Choice.RETRY, Choice.ACCEPT)))

    def _blocked(self, open_ones: Sequence[StepState]) -> list[StepState]:
        """Return what is stuck, and what stands behind something stuck that it is related to."""
        blocked = [s for s in open_ones if s.undo is Phase.STUCK]
        behind = blocked
        while behind:
            behind = [
                s
                for s in open_ones
                if s not in blocked and any(self._is_tied_behind(other, s) for other in blocked)
            ]
            blocked = [*blocked, *behind]
        return blocked

    def _must_wait(self, state: StepState, blocked: Sequence[StepState]) -> bool:
        """Return whether something else is to be undone first.

        A store's turn is kept, but what fails does not stop what has nothing to do with it.
        """
        return any(
            self._is_tied_behind(other, state)
            or (other.undo in (Phase.NEW, Phase.RUNNING) and other not in blocked)
            for other in self.states
            if not other.is_clean and self._is_earlier(other.entry, state.entry)
        )

    def _is_tied_behind(self, other: StepState, state: StepState) -> bool:
        """Return whether ``state`` is undone only when ``other``, related to it, has been."""
        is_related = self.plan.are_related(other.entry, state.entry)
        return is_related and self._is_earlier(other.entry, state.entry)

    def _is_earlier(self, one: Entry, other: Entry) -> bool:
        if one.step.undo_order != other.step.undo_order:
            return one.step.undo_order < other.step.undo_order
        return self.plan.comes_after(one, other)


def _act_or_wait(candidates: Iterable[tuple[StepState, Direction]], now: datetime) -> Next:
    """Run what is ready; where nothing is, wait for the first that will be."""
    startable, instants = [], []
    for state, direction in candidates:
        phase, ready_at = state.phase(direction), state.ready_at(direction)
        if phase not in (Phase.NEW, Phase.RUNNING, Phase.WAITING):
            continue
        if phase is not Phase.RUNNING and (ready_at is None or ready_at <= now):
            startable.append(Task(state.entry, direction))
        else:
            instants.append(ready_at)
    if startable:
        return Act(tuple(startable))
    return Wait(min(instant for instant in instants if instant is not None))


def _stuck(state: StepState, direction: Direction) -> Stuck:
    entry = state.entry
    reason = state.reason(direction) or "it was sealed, and can only be replaced or undone"
    return Stuck(entry.title, entry.operation(direction), reason)
