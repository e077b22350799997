"""Which sagas may be defined: what could not be undone safely is refused before it can happen."""

from __future__ import annotations

import re
import string
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from backfill_assets.core.errors import SagaDefinitionError
from backfill_assets.core.operations import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backfill_assets.core.sagas import SagaDefinition, Step

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def check_definition(definition: SagaDefinition) -> None:
    """Refuse a saga that cannot be driven to an end, or that could leave what nobody undoes.

    Raises:
        SagaDefinitionError: names the saga, the step and what to change.
    """
    _check_names(definition)
    for step in definition.steps:
        _check_undo(definition, step)
        _check_numbers(definition, step)
        _check_locks(definition, step)
    _check_order(definition)
    _check_pivots(definition)


def _check_names(definition: SagaDefinition) -> None:
    names = [step.name for step in definition.steps]
    for name in (definition.name, *names):
        if not _NAME.fullmatch(name):
            raise _refused(definition, f"{name!r} is no name; use lower-case letters, digits and _")
    if not names:
        raise _refused(definition, "it has no step; give it one")
    for name in names:
        if names.count(name) > 1:
            raise _refused(definition, f"two steps are called {name!r}; rename one")


def _check_undo(definition: SagaDefinition, step: Step) -> None:
    if step.kind is Kind.IRREVERSIBLE and step.undo is not None:
        what = f"step {step.name!r} is irreversible and names an undo; take one of the two away"
        raise _refused(definition, what)
    if step.kind is not Kind.IRREVERSIBLE and step.undo is None:
        what = f"step {step.name!r} has no undo; name one, or make its kind IRREVERSIBLE"
        raise _refused(definition, what)
    if step.undo_kind is Kind.IRREVERSIBLE:
        what = f"the undo of {step.name!r} is irreversible, but an undo may be repeated"
        raise _refused(definition, what)


def _check_numbers(definition: SagaDefinition, step: Step) -> None:
    if step.timeout <= timedelta(0):
        raise _refused(definition, f"step {step.name!r} has no time; its timeout is {step.timeout}")
    for retries in (step.retries, step.undo_retries):
        if retries.max_attempts < 1:
            raise _refused(definition, f"step {step.name!r} is never tried; allow one attempt")


def _check_locks(definition: SagaDefinition, step: Step) -> None:
    for lock in step.locks:
        if not all(name.isidentifier() for name in lock_fields(lock)):
            what = f"lock {lock!r} of step {step.name!r}: braces hold a name of its arguments"
            raise _refused(definition, what)


def lock_fields(lock: str) -> list[str]:
    """Return the names of arguments that a lock's name is made of."""
    try:
        return [name for _, name, _, _ in string.Formatter().parse(lock) if name is not None]
    except ValueError:
        return [""]  # a brace that is never closed: no name either


def _check_order(definition: SagaDefinition) -> None:
    names = {step.name for step in definition.steps}
    for step in definition.steps:
        for unknown in sorted(set(step.after) - names):
            what = f"step {step.name!r} comes after {unknown!r}, which is no step of it"
            raise _refused(definition, what)
    try:
        TopologicalSorter({step.name: step.after for step in definition.steps}).prepare()
    except CycleError as error:
        circle = " after ".join(error.args[1])
        raise _refused(definition, f"its steps wait for each other: {circle}") from None


def _check_pivots(definition: SagaDefinition) -> None:
    """After an irreversible step nothing may ask for an undo: the way back is closed."""
    for pivot in _irreversible(definition.steps):
        before = definition.ancestors(pivot.name)
        for step in definition.steps:
            is_safe = step is pivot or step.name in before
            if not is_safe and definition.on_failure_of(step) != "forward_only":
                what = (
                    f"step {step.name!r} may run after {pivot.name!r}, which is irreversible; "
                    "make it forward_only, or put it before"
                )
                raise _refused(definition, what)


def _irreversible(steps: Iterable[Step]) -> list[Step]:
    return [step for step in steps if step.kind is Kind.IRREVERSIBLE]


def _refused(definition: SagaDefinition, what: str) -> SagaDefinitionError:
    return SagaDefinitionError(f"saga {definition.name!r}: {what}")
