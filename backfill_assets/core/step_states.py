"""How far a step is, derived from its two operations in the idempotency log, and from nothing else.

An attempt whose outcome is not known may have happened. Only a definite failure, a transaction that
can no longer commit, or an operation that never began leaves nothing to undo.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from backfill_assets.core.operations import Kind, Status
from backfill_assets.core.sagas import Direction

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from backfill_assets.core.operations import Json, OperationState
    from backfill_assets.core.saga_plans import Entry, SagaPlan

# What an attempt can end with that another attempt would end with as well.
FINAL_ERRORS = frozenset({"StepRefusedError", "ConflictError"})


class Effect(StrEnum):
    """What doing a step may have left in the world."""

    NONE = "none"
    MAYBE = "may have happened"
    APPLIED = "applied"


class Phase(StrEnum):
    """How far one direction of a step is."""

    NEW = "not begun"
    RUNNING = "running"
    WAITING = "to be tried again"
    DONE = "done"
    STUCK = "stuck"  # the budget is spent, or trying again does not help or is not allowed
    SEALED = "sealed"  # not done, and never to be


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFacts:
    """What the log says about an operation.

    Attributes:
        is_in_doubt: An attempt may have happened without our knowing, the last one included.
        attempt: The number of the last attempt.
        spent: Attempts that count against the budget.
        is_running: An attempt is under way; it is believed until ``lease_until``.
        is_sealed: No attempt starts or completes any more.
        error_type: Of the last attempt, where it failed.
    """

    attempt: int = 0
    spent: int = 0
    is_completed: bool = False
    is_running: bool = False
    is_in_doubt: bool = False
    is_sealed: bool = False
    lease_until: datetime | None = None
    retry_at: datetime | None = None
    result: Json = None
    error_type: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """How far an entry of a plan is.

    Attributes:
        do, undo: How far each direction is.
        effect: What doing it may have left.
        ready_at: When the next attempt of the direction that waits or runs may start; None: now.
        reason: Why it is stuck, in words.
    """

    entry: Entry
    do: Phase
    undo: Phase
    effect: Effect
    do_ready_at: datetime | None = None
    undo_ready_at: datetime | None = None
    do_reason: str = ""
    undo_reason: str = ""
    receipt: Json = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing of it is left in the world, and nothing can come any more."""
        is_over = self.do is Phase.SEALED and self.effect is Effect.NONE
        return is_over or self.undo is Phase.DONE

    def phase(self, direction: Direction) -> Phase:
        """Return how far one direction is."""
        return self.do if direction is Direction.DO else self.undo

    def ready_at(self, direction: Direction) -> datetime | None:
        """Return when the next attempt of a direction may start; None: now."""
        return self.do_ready_at if direction is Direction.DO else self.undo_ready_at

    def reason(self, direction: Direction) -> str:
        """Return why a direction is stuck, in words."""
        return self.do_reason if direction is Direction.DO else self.undo_reason


def step_states(
    plan: SagaPlan,
    facts: Mapping[str, OperationFacts],
    now: datetime,
    *,
    known: Collection[str],
    verifiable: Collection[str],
) -> list[StepState]:
    """Return the state of every entry of a plan, what was replaced included.

    Args:
        facts: What the log says, by operation; an operation that never began is not in it.
        known: The registered names of this process.
        verifiable: The registered names whose effect can be asked for.
    """
    derivation = _Derivation(plan, facts, now, known, verifiable)
    return [derivation.state(entry) for entry in plan.every_entry]


def facts_of(state: OperationState) -> OperationFacts:
    """Return what the log says about an operation, as far as a saga asks."""
    return OperationFacts(
        attempt=state.attempt,
        spent=state.spent,
        is_completed=state.status is Status.COMPLETED,
        is_running=state.status is Status.PROCESSING,
        is_in_doubt=state.in_doubt,
        is_sealed=state.is_sealed,
        lease_until=state.lease_until,
        retry_at=state.retry_at,
        result=state.result,
        error_type=state.error.error_type if state.error else None,
        error=state.error.error_message if state.error else None,
    )


def effect_of(kind: Kind, facts: OperationFacts | None) -> Effect:
    """Return what an operation may have left in the world."""
    if facts is None:
        return Effect.NONE
    if facts.is_completed:
        return Effect.APPLIED
    if kind is Kind.TRANSACTIONAL and (facts.is_sealed or not facts.is_running):
        return Effect.NONE  # completing is part of the transaction: without it, it rolled back
    return Effect.MAYBE if facts.is_running or facts.is_in_doubt else Effect.NONE


@dataclass(frozen=True, slots=True)
class _Derivation:
    plan: SagaPlan
    facts: Mapping[str, OperationFacts]
    now: datetime
    known: Collection[str]
    verifiable: Collection[str]

    def state(self, entry: Entry) -> StepState:
        do = self.facts.get(entry.operation(Direction.DO))
        do_phase, do_reason = self._phase(entry, Direction.DO)
        undo_phase, undo_reason = self._phase(entry, Direction.UNDO)
        return StepState(
            entry=entry,
            do=do_phase,
            undo=undo_phase,
            effect=effect_of(entry.step.kind, do),
            do_ready_at=self._ready_at(entry, Direction.DO),
            undo_ready_at=self._ready_at(entry, Direction.UNDO),
            do_reason=do_reason,
            undo_reason=undo_reason,
            receipt=do.result if do else None,
        )

    def _phase(self, entry: Entry, direction: Direction) -> tuple[Phase, str]:
        facts = self.facts.get(entry.operation(direction))
        if facts is not None and facts.is_completed:
            return Phase.DONE, ""
        if facts is not None and facts.is_sealed:
            return Phase.SEALED, ""
        if facts is not None and facts.is_running and self._is_believed(facts):
            return Phase.RUNNING, ""
        is_accepted = entry.operation(direction) in self.plan.accepted
        if not is_accepted and (reason := self._obstacle(entry, direction, facts)):
            return Phase.STUCK, reason
        return (Phase.NEW if facts is None else Phase.WAITING), ""

    def _is_believed(self, facts: OperationFacts) -> bool:
        return facts.lease_until is not None and facts.lease_until > self.now

    def _obstacle(
        self, entry: Entry, direction: Direction, facts: OperationFacts | None
    ) -> str | None:
        """Return why it makes no sense to run an operation by itself, or None where it does."""
        step = entry.step
        name = step.do if direction is Direction.DO else step.undo
        if name is not None and name not in self.known:
            return f"{name!r} is not registered in this deployment; deploy it again"
        if facts is None:
            return None
        said = facts.error or "nothing was heard of it"
        allowance = self.plan.allowances.get(entry.operation(direction))
        is_forgiven = allowance is not None and facts.attempt <= allowance.forgiven
        if facts.error_type in FINAL_ERRORS and not is_forgiven and not facts.is_running:
            return said
        if direction is Direction.DO and self._is_unrepeatable(entry, facts) and not is_forgiven:
            return f"it may have happened, and must not be repeated unasked: {said}"
        retries = step.retries if direction is Direction.DO else step.undo_retries
        allowed = allowance.attempts if allowance else retries.max_attempts
        if facts.spent >= allowed:
            return f"{facts.spent} attempts failed; the last one: {said}"
        return None

    def _is_unrepeatable(self, entry: Entry, facts: OperationFacts) -> bool:
        """Whether repeating it may do it twice, and nobody can be asked whether it happened."""
        kind = entry.step.kind
        if kind not in (Kind.REMOTE, Kind.IRREVERSIBLE) or entry.step.do in self.verifiable:
            return False
        return (facts.is_in_doubt or facts.is_running) and not entry.step.is_deduplicated

    def _ready_at(self, entry: Entry, direction: Direction) -> datetime | None:
        operation = entry.operation(direction)
        facts = self.facts.get(operation)
        if facts is None:
            return None
        if facts.is_running and self._is_believed(facts):
            return facts.lease_until
        return facts.retry_at
