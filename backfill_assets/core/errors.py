"""Every error that this project raises on purpose.

A message says what was found, where, and what to do about it. Errors of libraries are translated
once, at the edge where they occur.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from backfill_assets.core.operations import Json
    from backfill_assets.core.store import Published


class BackfillAssetsError(Exception):
    """Base of every error raised on purpose; catching it catches nothing else."""


class CatalogueError(BackfillAssetsError):
    """A catalogue, a unit, a query or a bound is not valid as written."""


class UnknownPartitionError(BackfillAssetsError):
    """A partition was named that the catalogue does not have."""


class SettingsError(BackfillAssetsError):
    """A setting is missing, malformed, or contradicts another; the message names the variable."""


class SourceNotReadyError(BackfillAssetsError):
    """The source knows that it is not ready; the partitions wait and no attempt is spent."""


class SourceError(BackfillAssetsError):
    """The source cannot be reached or read, or returned rows that the catalogue does not allow."""


class ModelError(BackfillAssetsError):
    """A model is absent or damaged, or was asked for something that it cannot score."""


class PartitionsRefusedError(BackfillAssetsError):
    """A run was asked for open or held partitions; the others are committed."""


class HelperDiedError(BackfillAssetsError):
    """A process that worked for this one ended by itself; what it was asked for was not done."""


class OperationError(BackfillAssetsError):
    """Base of what the idempotency log refuses, or cannot know."""


class StoreError(BackfillAssetsError):
    """Base of what can go wrong with a store of files."""


class StoreUnreadableError(StoreError):
    """A place in the store cannot be read, or the root lost its identity; never missing work."""


class StoreUnsupportedError(StoreError):
    """The file system lacks what the commit protocol needs, or another format owns the root."""


class StoreFullError(StoreError):
    """The file system has no room; nothing of the group became visible."""


class PublishRefusedError(StoreError):
    """A target was left as it stands; the other partitions of the group are published.

    Attributes:
        published: What of the group was made visible all the same.
    """

    published: Sequence[Published] = ()


class ContentConflictError(PublishRefusedError):
    """A target already holds other content than the one about to be published."""


class ForeignFileError(PublishRefusedError):
    """Something that this project did not write stands at a target's path."""


class StaleAttemptError(StoreError, OperationError):
    """The attempt was revoked, or another one took over: what it had not done stays undone.

    Attributes:
        wanted: What it would have returned, JSON, where that is known; None where it is not.
    """

    wanted: object = None


class MissingPartitionError(StoreError):
    """A partition was asked for that is not committed: absent, never empty."""


class CorruptPartitionError(StoreError):
    """A committed file is unreadable, or is not what its commit record and its path say."""


class KeyReusedError(OperationError):
    """The key was used for another payload before; nothing was done."""


class BusyError(OperationError):
    """Another attempt is at work, or the operation backs off; nothing was done.

    Attributes:
        retry_after: When to ask again.
    """

    def __init__(self, message: str, retry_after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[BusyError], tuple[str, timedelta]]:
        return type(self), (str(self), self.retry_after)  # to another process, whole


class SealedError(OperationError):
    """The operation was sealed, as an undo does: no attempt starts or completes any more."""


class NotAppliedError(OperationError):
    """Raised by an act that knows that nothing happened: a definite failure."""


class RemoteUnreachableError(NotAppliedError):
    """Nothing listens where a server should be; nothing was sent."""


class RemoteError(OperationError):
    """A server gave no answer, or none that says what it did: it may have done it."""


class OperationFailedError(OperationError):
    """An attempt failed; its own error is the cause.

    Attributes:
        retry_at: When the next attempt may start, or None where none may.
    """

    def __init__(self, message: str, retry_at: datetime | None) -> None:
        super().__init__(message)
        self.retry_at = retry_at

    def __reduce__(self) -> tuple[type[OperationFailedError], tuple[str, datetime | None]]:
        return type(self), (str(self), self.retry_at)  # to another process, whole


class BudgetSpentError(OperationError):
    """Every attempt that the policy allows has started; a person looks, and reopens it."""


class OutcomeUnknownError(OperationError):
    """It may have happened, nobody can tell, and it must not be repeated; an alert was written."""


class ResultRefusedError(OperationError):
    """A result is not JSON, or is too large to be stored."""


class DuplicateEffectError(OperationError):
    """A constraint of a result's own table says that the effect is there already."""


class LogSchemaError(OperationError):
    """The log's tables are of another version than this program's."""


class SagaError(BackfillAssetsError):
    """Base of what can be wrong with a saga, or with what is asked of one."""


class ReleaseError(BackfillAssetsError):
    """A day cannot be released, retracted or mended as things stand; the message says why."""


class SagaDefinitionError(SagaError):
    """A saga cannot be defined like this; the message names the step and what to change."""


class SagaArgumentsError(SagaError):
    """A saga was started, or a step replaced, with arguments that its definition cannot use."""


class UnknownSagaError(SagaError):
    """A saga, a step or a definition was named that is not there."""


class UnreadableSagaError(SagaError):
    """A stored saga is none that this program can read: another one wrote it, or changed it."""


class SagaStateError(SagaError):
    """What was asked for is not possible in the state that the saga is in."""


class SagaVersionError(SagaError):
    """The saga has moved on since it was looked at: somebody else was first."""


class TryAgainError(NotAppliedError):
    """It certainly did not happen, and is worth another attempt: the other side is busy or down."""


class StepRefusedError(NotAppliedError):
    """How a definite failure of a step is recorded: it did not happen, and trying does not help."""


class ConflictError(NotAppliedError):
    """An undo met a change by somebody else, and left it alone.

    Args:
        message: What was found, and where.
        evidence: Both versions, for the person who decides.
    """

    def __init__(self, message: str, evidence: Json) -> None:
        super().__init__(f"{message}; evidence: {json.dumps(evidence, sort_keys=True)}")
        self.evidence = evidence


class BookingRefusedError(NotAppliedError):
    """Something was to be booked that is not on offer, or is malformed; nothing was booked."""


class NothingFreeError(BookingRefusedError):
    """A flight or a hotel is full; nothing was booked."""
