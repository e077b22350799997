"""What a saga is: named steps that are done in order, and undone when they fail half-way.

A definition is a value that is stored with each saga before anything happens, so that any process
can go on with it, or undo it, also after the code has changed. What a step does, and what undoes
it, is code found by a registered name. Whether a saga may be written like this is decided in
``saga_checks``, what is next in ``saga_decisions``.

Source: Garcia-Molina and Salem, *Sagas*, 1987; Richardson, *Microservices Patterns*, chapter 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from backfill_assets.core.saga_checks import check_definition

if TYPE_CHECKING:
    from backfill_assets.core.operations import Kind

FIRST_WAIT = timedelta(seconds=1)
LONGEST_WAIT = timedelta(hours=1)
STEP_TIMEOUT = timedelta(seconds=60)
UNDO_ATTEMPTS = 10  # giving up on an undo costs a person's time: twice as many as on doing


class OnFailure(StrEnum):
    """What happens when a step's retries are spent, or trying again will not help."""

    COMPENSATE = "compensate"  # undo what was done
    ASK = "ask"  # a person chooses
    FORWARD_ONLY = "forward_only"  # never undone by itself: a person mends it, and it goes on


class SagaStatus(StrEnum):
    """Where a saga stands; the last two are ends."""

    RUNNING = "RUNNING"
    COMPENSATING = "COMPENSATING"
    AWAITING_DECISION = "AWAITING_DECISION"
    COMPLETED = "COMPLETED"
    COMPENSATED = "COMPENSATED"

    @property
    def is_moving(self) -> bool:
        """Whether a process drives it, or will when its lease or timer has passed."""
        return self in (SagaStatus.RUNNING, SagaStatus.COMPENSATING)


class Direction(StrEnum):
    """The two operations of a step; each has a row of its own in the idempotency log."""

    DO = "do"
    UNDO = "undo"


class Choice(StrEnum):
    """What a person can decide about a saga that waits."""

    RETRY = "retry"  # a new budget for what is stuck
    REPLACE = "replace"  # the stuck step with other arguments
    ACCEPT = "accept"  # a person vouches that what is stuck is done, or undone
    COMPENSATE = "compensate"  # undo everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How stubbornly one direction of a step is tried; the budget survives restarts.

    Undoing is dear, so the defaults are generous.

    Attributes:
        max_attempts: Starts, crashed ones included.
        first_wait: Before the second attempt; it doubles from there, up to ``longest_wait``.
        jitter: The part of a wait that is left to chance, 0 to 1.
    """

    max_attempts: int = 5
    first_wait: timedelta = FIRST_WAIT
    longest_wait: timedelta = LONGEST_WAIT
    jitter: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a saga.

    Attributes:
        name: Lower-case letters, digits and underscores.
        kind: What kind of effect doing it has.
        do: The registered name of what it does.
        undo: The registered name of what takes that back; None only where it is irreversible.
        after: Steps that must be done before. Steps that do not depend on each other overlap.
        undo_order: Smaller is undone first; of one number, dependents before what they came after.
        on_failure: What happens when it fails for good; the saga's where it is None.
        locks: Resources that nobody else may use meanwhile; ``{name}`` is filled from the step's
            arguments.
        timeout: How long an attempt may take. After it the attempt is fenced; it may have happened.
        is_deduplicated: Whether the remote honours an idempotency key, so that an attempt in doubt
            can be repeated.
        undo_kind: What kind of effect undoing has; None where it is the same. An undo is an
            idempotent command: it is repeated when in doubt.
    """

    name: str
    kind: Kind
    do: str
    undo: str | None
    after: tuple[str, ...] = ()
    undo_order: int = 0
    on_failure: OnFailure | None = None
    locks: tuple[str, ...] = ()
    timeout: timedelta = STEP_TIMEOUT
    retries: Retries = Retries()
    undo_retries: Retries = Retries(max_attempts=UNDO_ATTEMPTS)
    is_deduplicated: bool = False
    undo_kind: Kind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaDefinition:
    """The steps of a saga, checked when it is made.

    Attributes:
        name: Lower-case letters, digits and underscores.
        on_failure: What happens when a step fails for good and does not say so itself.
        lock_patience: How long it waits for its locks. Then it ends if nothing was done yet, and
            otherwise asks a person.
    """

    name: str
    steps: tuple[Step, ...]
    on_failure: OnFailure = OnFailure.COMPENSATE
    lock_patience: timedelta = timedelta(minutes=1)
    description: str = ""

    def __post_init__(self) -> None:
        check_definition(self)

    def step(self, name: str) -> Step:
        """Return the step of that name."""
        return {step.name: step for step in self.steps}[name]

    def on_failure_of(self, step: Step) -> OnFailure:
        """Return what happens when a step fails for good."""
        return step.on_failure or self.on_failure

    def ancestors(self, name: str) -> frozenset[str]:
        """Return the steps that must be done before this one, directly or not."""
        direct = self.step(name).after
        return frozenset(direct).union(*(self.ancestors(one) for one in direct))
