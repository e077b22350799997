"""The steps of the pipeline, what they are done for, and how far each has come.

A step is an operation of the log; its key is the same in all steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets.core.operations import Kind, Operation, Policy
from backfill_assets.flights.models.saving import Scores

if TYPE_CHECKING:
    from datetime import date

    from backfill_assets.core.errors import OperationError

CATALOGUE = "flight_models"
KEY_PREFIX = f"{CATALOGUE}/"
REQUEST_PREFIX = "flight_request/"
# No budget: the steps may be repeated at no cost, and whatever was broken is noticed when it is
# mended, within the hour.
POLICY = Policy(max_attempts=None, first_wait=timedelta(seconds=2), longest_wait=timedelta(hours=1))

PREPROCESS = Operation(name="preprocess", kind=Kind.TRANSACTIONAL, policy=POLICY)
SCORE_RISK = Operation(name="score_risk", kind=Kind.REMOTE, policy=POLICY, is_deduplicated=True)
SCORE_ANOMALY = Operation(
    name="score_anomaly", kind=Kind.REMOTE, policy=POLICY, is_deduplicated=True
)
SAVE = Operation(name="save", kind=Kind.TRANSACTIONAL, policy=POLICY)
OPERATIONS = (PREPROCESS, SCORE_RISK, SCORE_ANOMALY, SAVE)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is scored: all flights of a day at an airport, or the one that a request asks for.

    Attributes:
        key: The idempotency key of all its steps.
        flight: Of a request; None is all.
    """

    key: str
    day: date
    unit: str
    flight: str | None = None

    @classmethod
    def of_day(cls, day: date, unit: str, model: str) -> Subject:
        """Return all flights of a day at an airport, scored by models of a version."""
        return cls(f"{KEY_PREFIX}{day}/{unit}/{model}", day, unit)

    @classmethod
    def of_request(cls, request: str, day: date, unit: str, flight: str) -> Subject:
        """Return one flight, asked for under the client's own name for the request."""
        return cls(f"{REQUEST_PREFIX}{request}", day, unit, flight)


@dataclass(slots=True)
class Progress:
    """What one run of the pipeline has of each subject, by key.

    Attributes:
        results: Of each step, by the operation's name.
        problems: Why a subject went no further.
    """

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: dict[str, OperationError] = field(default_factory=dict)

    def of(self, operation: Operation) -> dict[str, Any]:
        """Return the results of a step by key."""
        return self.results.setdefault(operation.name, {})

    def scores(self, key: str) -> Scores:
        """Return the scores of a subject that passed all steps."""
        return _scores(*(self.of(step)[key] for step in (PREPROCESS, SCORE_RISK, SCORE_ANOMALY)))


def _scores(made: Any, risks: Any, anomalies: Any) -> Scores:
    return Scores(model=made["model"], flights=made["flights"], risks=risks, anomalies=anomalies)
