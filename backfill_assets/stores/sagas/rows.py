"""Sagas as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import SagaError, UnreadableSagaError
from backfill_assets.core.saga_codec import plan_of, question_of
from backfill_assets.core.sagas import SagaStatus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from backfill_assets.core.saga_decisions import Question
    from backfill_assets.core.saga_plans import SagaPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    """A saga as one read found it.

    Attributes:
        saga_id: ``name/key``.
        version: Raised by every change; whoever decides names the one that was looked at.
        is_turned_back: Whether it is being undone: no step can be done any more.
        owner: Who drives it.
        due_at: When anyone may take it up: the end of the owner's lease, or a timer.
        faults: How often in a row driving it broke off, and ``fault`` why.
    """

    saga_id: str
    name: str
    key: str
    stored_plan: Mapping[str, Any]
    fingerprint: str
    status: SagaStatus
    version: int
    is_turned_back: bool
    owner: str | None
    due_at: datetime | None
    question: Question | None
    lock_wait_since: datetime | None
    faults: int
    fault: str | None
    created_at: datetime
    updated_at: datetime

    @property
    def plan(self) -> SagaPlan:
        """The plan; read only here, so that one that cannot be read spoils no list of sagas.

        Raises:
            UnreadableSagaError: it is none that this program can read.
        """
        try:
            return plan_of(self.stored_plan)
        except (KeyError, TypeError, ValueError, SagaError) as error:
            message = (
                f"saga {self.saga_id}: its plan cannot be read ({type(error).__name__}: {error}); "
                "deploy the program that wrote it, and retry"
            )
            raise UnreadableSagaError(message) from error

    @property
    def is_over(self) -> bool:
        """Whether it is at its end."""
        return self.status in (SagaStatus.COMPLETED, SagaStatus.COMPENSATED)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One change of a saga's state: who, and why."""

    version: int
    event: str
    who: str
    why: str
    detail: Any
    at: datetime


def saga_of(row: Mapping[str, Any]) -> Saga:
    """Return a row of the table ``saga``."""
    values = dict(row)
    question = values.pop("question")
    return Saga(
        stored_plan=values.pop("plan"),
        status=SagaStatus(values.pop("status")),
        question=None if question is None else question_of(question),
        **values,
    )
