"""What steps do and what undoes them: code by registered name, and what it is called with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backfill_assets.core.errors import SagaDefinitionError, SagaStateError, UnknownSagaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import Attempt, Found, Json
    from backfill_assets.core.sagas import SagaDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """What both directions are called with.

    Attributes:
        saga: The id of the saga: mark with it what the step writes.
        arguments: As stored before the step acted.
        attempt: ``attempt.remote_key`` is the same in every attempt: the ``Idempotency-Key``.
        deadline: When the attempt is fenced; no request should outlive it.
    """

    saga: str
    step: str
    arguments: Json
    attempt: Attempt
    deadline: datetime
    opened: psycopg.Connection | None = field(default=None, repr=False)

    @property
    def connection(self) -> psycopg.Connection:
        """The transaction that commits the effect together with its record; never commit it.

        Raises:
            SagaStateError: the step is not TRANSACTIONAL.
        """
        if self.opened is None:
            message = (
                f"{self.attempt} is {self.attempt.operation.kind}: only TRANSACTIONAL steps write "
                "in the log's transaction"
            )
            raise SagaStateError(message)
        return self.opened


@dataclass(frozen=True, slots=True, kw_only=True)
class DoCall(_Call):
    """One attempt at doing a step.

    Attributes:
        results: The receipts of the steps that it comes after.
    """

    results: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoCall(_Call):
    """One attempt at undoing a step.

    Attributes:
        receipt: What doing it returned; None where that was never heard.
        has_receipt: Whether doing it is known to have happened.
        do_key: The ``Idempotency-Key`` that doing it sent. Without a receipt, take back what came
            under it, and see to it that a request that is still on its way is refused.
    """

    receipt: Json
    has_receipt: bool
    do_key: str


@dataclass(frozen=True, slots=True)
class SagaRegistry:
    """The sagas that a deployment knows, and the code behind the names in them.

    Attributes:
        do: What steps do; what it returns is the step's receipt. Raises NotAppliedError where it
            certainly did not happen and trying again does not help, TryAgainError where it does.
        undo: What takes a step back: conditionally, only what the step itself wrote, and any number
            of times. Raises ConflictError where somebody else changed it since.
        verify: By the name of a do: whether an attempt in doubt happened. Found(receipt), or None
            where it did not and will not; raises where it cannot tell.
    """

    definitions: Iterable[SagaDefinition]
    do: Mapping[str, Callable[[DoCall], Json]] = field(default_factory=dict)
    undo: Mapping[str, Callable[[UndoCall], Json]] = field(default_factory=dict)
    verify: Mapping[str, Callable[[DoCall], Found | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "definitions", tuple(self.definitions))
        for definition in self.definitions:
            self._check(definition)

    @property
    def names(self) -> frozenset[str]:
        """Every registered name."""
        return frozenset(self.do) | frozenset(self.undo)

    def definition(self, name: str) -> SagaDefinition:
        """Return the definition of that name.

        Raises:
            UnknownSagaError: there is none.
        """
        found = self.find(name)
        if found is None:
            known = ", ".join(one.name for one in self.definitions) or "none"
            raise UnknownSagaError(f"saga {name!r} is not defined; there is {known}")
        return found

    def find(self, name: str) -> SagaDefinition | None:
        """Return the definition of that name, or None."""
        return next((one for one in self.definitions if one.name == name), None)

    def _check(self, definition: SagaDefinition) -> None:
        if [one.name for one in self.definitions].count(definition.name) > 1:
            raise SagaDefinitionError(f"two sagas are called {definition.name!r}; rename one")
        for step in definition.steps:
            if step.do not in self.do:
                raise _unregistered(definition, step.name, step.do, self.do)
            if step.undo is not None and step.undo not in self.undo:
                raise _unregistered(definition, step.name, step.undo, self.undo)


def _unregistered(
    definition: SagaDefinition, step: str, name: str, known: Iterable[str]
) -> SagaDefinitionError:
    return SagaDefinitionError(
        f"saga {definition.name!r}: step {step!r} names {name!r}, which is not registered; there "
        f"is {', '.join(sorted(known)) or 'none'}"
    )
