"""What is stored of a saga before anything happens, and what people decided about it since.

A plan says what is to be done and with which arguments. How far it got is not in it: that is
derived from the idempotency log, and stored nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from backfill_assets.core.errors import SagaArgumentsError
from backfill_assets.core.saga_checks import lock_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backfill_assets.core.operations import Json
    from backfill_assets.core.sagas import Direction, SagaDefinition, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A step with its arguments.

    Attributes:
        revision: 1, and one more each time a person gave the step other arguments.
    """

    step: Step
    arguments: Json
    revision: int = 1

    @property
    def title(self) -> str:
        """The step's name, with the revision where there were several."""
        return self.step.name if self.revision == 1 else f"{self.step.name}@{self.revision}"

    def operation(self, direction: Direction) -> str:
        """Return the name of one of its two operations in the idempotency log."""
        return f"{self.title}.{direction}"

    @property
    def locks(self) -> list[str]:
        """The resources that it works on.

        Raises:
            SagaArgumentsError: its arguments lack a name that a lock is made of.
        """
        return [self._lock(pattern) for pattern in self.step.locks]

    def _lock(self, pattern: str) -> str:
        given = self.arguments if isinstance(self.arguments, dict) else {}
        for name in lock_fields(pattern):
            if name not in given:
                message = (
                    f"step {self.step.name!r} locks {pattern!r}, but its arguments have no "
                    f"{name!r}; found {', '.join(sorted(given)) or 'none'}"
                )
                raise SagaArgumentsError(message)
        return pattern.format_map(given)


@dataclass(frozen=True, slots=True)
class Allowance:
    """A new budget that a person gave an operation.

    Attributes:
        attempts: Starts in all, those before included.
        forgiven: The number of the last attempt that is not held against it any more.
    """

    attempts: int
    forgiven: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaPlan:
    """A definition with the arguments of each step.

    Attributes:
        entries: One for each step, in the definition's order.
        superseded: What a person replaced; it is undone where it may have happened.
        allowances: New budgets, by operation.
        accepted: What a person vouches for, by operation: it is recorded and not run.
    """

    definition: SagaDefinition
    entries: tuple[Entry, ...]
    superseded: tuple[Entry, ...] = ()
    allowances: Mapping[str, Allowance] = field(default_factory=dict)
    accepted: Mapping[str, Json] = field(default_factory=dict)

    @property
    def every_entry(self) -> tuple[Entry, ...]:
        """All entries, what was replaced included."""
        return (*self.superseded, *self.entries)

    @property
    def locks(self) -> list[str]:
        """All resources that the saga works on, sorted, so that no two sagas wait in a circle."""
        return sorted({lock for entry in self.entries for lock in entry.locks})

    def entry(self, step: str) -> Entry:
        """Return the current entry of a step."""
        return {entry.step.name: entry for entry in self.entries}[step]

    def entry_titled(self, title: str) -> Entry:
        """Return the entry of that title, which may have been replaced since."""
        return {entry.title: entry for entry in self.every_entry}[title]

    def are_related(self, one: Entry, other: Entry) -> bool:
        """Return whether one of two steps depends on the other."""
        return self.comes_after(one, other) or self.comes_after(other, one)

    def comes_after(self, one: Entry, other: Entry) -> bool:
        """Return whether ``one`` needs ``other`` to be done before it."""
        return other.step.name in self.definition.ancestors(one.step.name)

    def with_allowance(self, operation: str, allowance: Allowance) -> SagaPlan:
        """Return the plan with a new budget for one operation."""
        return replace(self, allowances={**self.allowances, operation: allowance})

    def with_accepted(self, operation: str, receipt: Json) -> SagaPlan:
        """Return the plan in which a person vouches for one operation."""
        return replace(self, accepted={**self.accepted, operation: receipt})

    def with_replaced(self, step: str, arguments: Json) -> SagaPlan:
        """Return the plan with other arguments for a step."""
        old = self.entry(step)
        new = replace(old, arguments=arguments, revision=old.revision + 1)
        entries = tuple(new if entry is old else entry for entry in self.entries)
        return replace(self, entries=entries, superseded=(*self.superseded, old))


def make_plan(definition: SagaDefinition, arguments: Mapping[str, Json]) -> SagaPlan:
    """Return the plan of a new saga.

    Args:
        arguments: One JSON value for each step.

    Raises:
        SagaArgumentsError: a step has none, there are some for no step, or a lock lacks one.
    """
    names = [step.name for step in definition.steps]
    if missing := [name for name in names if name not in arguments]:
        message = f"saga {definition.name!r}: no arguments for {', '.join(missing)}; give null"
        raise SagaArgumentsError(message)
    if unknown := sorted(arguments.keys() - set(names)):
        message = (
            f"saga {definition.name!r}: arguments for {', '.join(unknown)}, but its steps are "
            f"{', '.join(names)}"
        )
        raise SagaArgumentsError(message)
    entries = tuple(Entry(step=s, arguments=arguments[s.name]) for s in definition.steps)
    plan = SagaPlan(definition=definition, entries=entries)
    _ = plan.locks  # a lock that cannot be named is refused now, before anything happens
    return plan
