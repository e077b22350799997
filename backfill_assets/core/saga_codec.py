"""Plans, definitions and questions as JSON, to be stored; and what has changed in a definition.

A stored plan outlives the code that wrote it: a field that is added later needs a default here.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets.core.operations import Kind
from backfill_assets.core.saga_decisions import Question, Stuck
from backfill_assets.core.saga_plans import Allowance, Entry, SagaPlan
from backfill_assets.core.sagas import Choice, OnFailure, Retries, SagaDefinition, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

Facts = dict[str, Any]  # an object of JSON


def plan_facts(plan: SagaPlan) -> Facts:
    """Return a plan as JSON."""
    return {
        "definition": definition_facts(plan.definition),
        "entries": [_entry_facts(entry) for entry in plan.entries],
        "superseded": [_entry_facts(entry) for entry in plan.superseded],
        "allowances": {name: [a.attempts, a.forgiven] for name, a in plan.allowances.items()},
        "accepted": dict(plan.accepted),
    }


def plan_of(facts: Mapping[str, Any]) -> SagaPlan:
    """Return the plan that ``plan_facts`` gave."""
    definition = definition_of(facts["definition"])
    return SagaPlan(
        definition=definition,
        entries=tuple(_entry_of(definition, entry) for entry in facts["entries"]),
        superseded=tuple(_entry_of(definition, entry) for entry in facts["superseded"]),
        allowances={name: Allowance(*numbers) for name, numbers in facts["allowances"].items()},
        accepted=facts["accepted"],
    )


def definition_facts(definition: SagaDefinition) -> Facts:
    """Return a definition as JSON."""
    return {
        "name": definition.name,
        "on_failure": str(definition.on_failure),
        "lock_patience_seconds": definition.lock_patience.total_seconds(),
        "description": definition.description,
        "steps": [_step_facts(step) for step in definition.steps],
    }


def definition_of(facts: Mapping[str, Any]) -> SagaDefinition:
    """Return the definition that ``definition_facts`` gave."""
    return SagaDefinition(
        name=facts["name"],
        on_failure=OnFailure(facts["on_failure"]),
        lock_patience=timedelta(seconds=facts["lock_patience_seconds"]),
        description=facts["description"],
        steps=tuple(_step_of(step) for step in facts["steps"]),
    )


def question_facts(question: Question) -> Facts:
    """Return a question as JSON."""
    return {
        "reason": question.reason,
        "stuck": [
            {"step": one.step, "operation": one.operation, "reason": one.reason}
            for one in question.stuck
        ],
        "choices": [str(choice) for choice in question.choices],
    }


def question_of(facts: Mapping[str, Any]) -> Question:
    """Return the question that ``question_facts`` gave."""
    return Question(
        reason=facts["reason"],
        stuck=tuple(Stuck(**one) for one in facts["stuck"]),
        choices=tuple(Choice(choice) for choice in facts["choices"]),
    )


def differences(stored: SagaDefinition, current: SagaDefinition | None) -> list[str]:
    """Return in words how today's definition differs from the one that a saga was started with."""
    if current is None:
        return [f"{stored.name} is not defined any more"]
    then = {step.name: _step_facts(step) for step in stored.steps}
    today = {step.name: _step_facts(step) for step in current.steps}
    found = [f"step {name} is not in it any more" for name in then if name not in today]
    found += [f"step {name} is new" for name in today if name not in then]
    for name in then.keys() & today.keys():
        found += _changes(f"step {name}", then[name], today[name])
    own = [
        {k: v for k, v in definition_facts(d).items() if k != "steps"} for d in (stored, current)
    ]
    return sorted(found + _changes("saga", *own))


def _changes(what: str, then: Facts, today: Facts) -> list[str]:
    return [
        f"{what}: {name} was {then[name]!r}, is {today[name]!r}"
        for name in then
        if then[name] != today[name]
    ]


def _step_facts(step: Step) -> Facts:
    return {
        "name": step.name,
        "kind": str(step.kind),
        "do": step.do,
        "undo": step.undo,
        "after": list(step.after),
        "undo_order": step.undo_order,
        "on_failure": None if step.on_failure is None else str(step.on_failure),
        "locks": list(step.locks),
        "timeout_seconds": step.timeout.total_seconds(),
        "retries": _retries_facts(step.retries),
        "undo_retries": _retries_facts(step.undo_retries),
        "is_deduplicated": step.is_deduplicated,
        "undo_kind": None if step.undo_kind is None else str(step.undo_kind),
    }


def _step_of(facts: Mapping[str, Any]) -> Step:
    on_failure, undo_kind = facts["on_failure"], facts["undo_kind"]
    return Step(
        name=facts["name"],
        kind=Kind(facts["kind"]),
        do=facts["do"],
        undo=facts["undo"],
        after=tuple(facts["after"]),
        undo_order=facts["undo_order"],
        on_failure=None if on_failure is None else OnFailure(on_failure),
        locks=tuple(facts["locks"]),
        timeout=timedelta(seconds=facts["timeout_seconds"]),
        retries=_retries_of(facts["retries"]),
        undo_retries=_retries_of(facts["undo_retries"]),
        is_deduplicated=facts["is_deduplicated"],
        undo_kind=None if undo_kind is None else Kind(undo_kind),
    )


def _retries_facts(retries: Retries) -> Facts:
    values = {field.name: getattr(retries, field.name) for field in fields(retries)}
    return {k: v.total_seconds() if isinstance(v, timedelta) else v for k, v in values.items()}


def _retries_of(facts: Mapping[str, Any]) -> Retries:
    return Retries(
        max_attempts=facts["max_attempts"],
        first_wait=timedelta(seconds=facts["first_wait"]),
        longest_wait=timedelta(seconds=facts["longest_wait"]),
        jitter=facts["jitter"],
    )


def _entry_facts(entry: Entry) -> Facts:
    return {
        "step": entry.step.name,
        "arguments": entry.arguments,
        "revision": entry.revision,
    }


def _entry_of(definition: SagaDefinition, facts: Mapping[str, Any]) -> Entry:
    return Entry(
        step=definition.step(facts["step"]),
        arguments=facts["arguments"],
        revision=facts["revision"],
    )
