"""Operations under the idempotency log: their names, kinds, policies, attempts and outcomes.

An operation is named by an idempotency key and the name of a step. What is stored of it, and the
fence that makes its effect happen once, is in ``stores.log``; the words are those of Stripe's API
and of Kleppmann's essay on distributed locking.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import quote

from backfill_assets.core.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

# What a name may hold as it is: printable ASCII but `:`, which parts names, `%`, which escapes, and
# the two that a quoted HTTP header escapes.
_PLAIN = " !#$&'()*+,-./;<=>?@[]^_`{|}~"

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def joined(*parts: str | int) -> str:
    """Return one name for several parts: printable ASCII, and never the same for other parts."""
    return ":".join(quote(str(part), safe=_PLAIN, errors="surrogatepass") for part in parts)


class Kind(StrEnum):
    """What an operation's effect is, and so what may be done when nobody knows if it happened."""

    TRANSACTIONAL = "TRANSACTIONAL"  # commits in one transaction with its record: exactly once
    ARTIFACT = "ARTIFACT"  # a file, which proves itself
    REMOTE = "REMOTE"  # a call; carries a key that is the same in every attempt
    IRREVERSIBLE = "IRREVERSIBLE"  # never repeated unless it is known not to have happened


class Status(StrEnum):
    """Where an operation stands; whether a failed one may have happened is ``in_doubt``."""

    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Outcome(StrEnum):
    """How one attempt ended. UNKNOWN is not FAILED: it may have happened, or may still happen."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    FENCED = "FENCED"  # came back after another attempt, or a seal; what it wanted was not done


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """Why an attempt did not succeed.

    Attributes:
        outcome: FAILED, UNKNOWN or FENCED.
        error_type: The name of the error's class.
    """

    number: int
    outcome: Outcome
    error_type: str
    error_message: str


def never(_failed: FailedAttempt) -> bool:
    """Return False: no failure is final before the budget is spent."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often and when an operation is tried again; the count is kept in the log.

    Attributes:
        max_attempts: Attempts that may start until a person reopens the operation, crashed ones
            included; None for no limit.
        lease: How long an owner is believed without a sign of life.
        jitter: The share of a wait that is drawn by chance, 0 to 1.
        is_final: Asked why the last attempt failed: whether no other may follow.
    """

    max_attempts: int | None = 5
    lease: timedelta = timedelta(seconds=60)
    first_wait: timedelta = timedelta(seconds=1)
    longest_wait: timedelta = timedelta(hours=1)
    jitter: float = 0.2
    is_final: Callable[[FailedAttempt], bool] = never

    def __post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 1:
            raise OperationError(f"max_attempts is {self.max_attempts}; give 1 or more, or None")
        if self.lease <= timedelta(0) or self.first_wait < timedelta(0):
            raise OperationError(
                f"lease is {self.lease}, first_wait is {self.first_wait}; a lease is more than "
                "zero, a wait zero or more"
            )
        if self.longest_wait < timedelta(0):
            raise OperationError(f"longest_wait is {self.longest_wait}; give zero or more")
        if not 0 <= self.jitter <= 1:
            raise OperationError(f"jitter is {self.jitter}; give a share from 0 to 1")

    def is_spent(self, attempts: int) -> bool:
        """Return whether no attempt may follow after that many."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def wait_after(self, attempts: int, chance: float) -> timedelta:
        """Return how long to wait after so many attempts: twice as long each time.

        Args:
            attempts: One or more.
            chance: From 0 to 1; shortens the wait by up to ``jitter``.
        """
        wait = min(self.first_wait, self.longest_wait)
        for _ in range(attempts - 1):
            if wait in (timedelta(0), self.longest_wait):
                break  # it grows no more, and twice the longest may be more than a timedelta holds
            wait += min(wait, self.longest_wait - wait)
        return wait * (1 - self.jitter * chance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A step that the log guards.

    Attributes:
        name: The step; with an idempotency key it names one row of the log.
        is_deduplicated: REMOTE only: the remote honours ``Idempotency-Key``, so that a call in
            doubt is repeated under the same key.
    """

    name: str
    kind: Kind
    policy: Policy = field(default_factory=Policy)
    is_deduplicated: bool = False

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.strip():
            raise OperationError(f"operation {self.name!r}: give a name without blanks around it")
        if self.is_deduplicated and self.kind is not Kind.REMOTE:
            raise OperationError(
                f"operation {self.name!r} is {self.kind}: only REMOTE ones are deduplicated by a "
                "remote; leave is_deduplicated out"
            )

    @property
    def may_repeat_in_doubt(self) -> bool:
        """Whether it may simply be done again when nobody knows if it happened."""
        return self.kind in {Kind.TRANSACTIONAL, Kind.ARTIFACT} or self.is_deduplicated


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at an operation, by its present owner.

    Attributes:
        number: The fencing token: only grows, and is never used again.
        generation: Grows when what was completed is done again, or another payload is asked for.
        spent: Attempts that have started since it was new, or reopened, this one included.
        in_doubt: Whether an earlier attempt may have happened, or may still happen.
        taken_from: Whose attempt this one replaced because its lease had run out, or None.
        previous: Why the attempt before this one did not succeed, or None.
        claim: Of the call that started it. The number alone decides in one history of the log;
            where its rows were forgotten, or restored from a backup, numbers come again.
    """

    operation: Operation
    key: str
    number: int
    generation: int
    spent: int
    in_doubt: bool
    lease_until: datetime
    taken_from: str | None = None
    previous: FailedAttempt | None = None
    claim: UUID | None = None

    @property
    def remote_key(self) -> str:
        """What to send as ``Idempotency-Key``: the same in every attempt of a generation."""
        later = () if self.generation == 1 else (self.generation,)
        return joined(self.operation.name, self.key, *later)

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.operation.name} {self.key}"


@dataclass(frozen=True, slots=True)
class Claimed:
    """The operation is ours: act, then complete or fail the attempt."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Done:
    """It was done already; the stored result."""

    result: Json
    attempt: int


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody works on it, or it backs off; ask again after ``retry_after``."""

    retry_after: timedelta
    worker: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It may not be done; the error says why."""

    error: OperationError


Claim = Claimed | Done | Busy | Refused


@dataclass(frozen=True, slots=True)
class Found:
    """The effect of an attempt in doubt was found to be there; what its result is."""

    result: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationState:
    """Where an operation stands, as one read found it.

    Attributes:
        attempt: The number of the newest attempt; 0 where none ever started.
        outcome: Of the newest attempt; None where none ever started.
        in_doubt: Whether an attempt that is over may have happened.
        retry_at: When a failed one may be tried again; None: not before a person reopens it.
        sealed_reason: Why no attempt may start or complete any more, or None.
        error: Of the newest attempt, if it did not succeed.
        spent: Attempts that have started since it was new, or reopened.
    """

    key: str
    operation: str
    status: Status
    fingerprint: str
    attempt: int
    generation: int
    spent: int
    outcome: Outcome | None
    in_doubt: bool
    worker: str
    lease_until: datetime | None
    retry_at: datetime | None
    result: Json
    sealed_reason: str | None
    error: FailedAttempt | None
    created_at: datetime
    updated_at: datetime

    @property
    def is_sealed(self) -> bool:
        """Whether no attempt may start or complete any more."""
        return self.sealed_reason is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """What the log keeps of one attempt.

    Attributes:
        result_digest: Of the result that it stored, or wanted to store; None where it had none.
        result: What it had stored, where a later generation has replaced it.
        note: How another one ended it, or None.
    """

    number: int
    generation: int
    worker: str
    outcome: Outcome
    started_at: datetime
    ended_at: datetime | None
    error_type: str | None
    error_message: str | None
    error_trace: str | None
    result_digest: str | None
    result: Json
    note: str | None


@dataclass(frozen=True, slots=True)
class OperationTrail:
    """Everything known about one operation; attempts oldest first."""

    state: OperationState
    attempts: tuple[AttemptRecord, ...]
