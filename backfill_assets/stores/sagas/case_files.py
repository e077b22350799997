"""Everything that a person needs to decide about a saga, as JSON and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.core.saga_codec import differences
from backfill_assets.core.saga_decisions import still_applied
from backfill_assets.core.sagas import Choice, Direction
from backfill_assets.core.step_states import Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.core.operations import AttemptRecord, Json, OperationTrail
    from backfill_assets.core.sagas import SagaDefinition
    from backfill_assets.core.step_states import StepState
    from backfill_assets.stores.sagas.locks import Lock
    from backfill_assets.stores.sagas.rows import JournalEntry, Saga

_MEANING = {
    Choice.RETRY: "try what is stuck again, with a new budget; where it may have happened, this "
    "says that it did not",
    Choice.REPLACE: "do the step with other arguments instead",
    Choice.ACCEPT: "say that what is stuck is done, or was undone by hand; it is not run",
    Choice.COMPENSATE: "undo everything that may have happened",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFile:
    """One look at a saga and at all that is known of it.

    Attributes:
        states: How far each entry of its plan is.
        trails: Every operation and attempt in the log.
        locks: What it holds, and who holds what it needs.
        current: The definition of that name in this deployment.
    """

    saga: Saga
    states: Sequence[StepState]
    trails: Sequence[OperationTrail]
    locks: Sequence[Lock]
    journal: Sequence[JournalEntry]
    current: SagaDefinition | None

    @property
    def still_applied(self) -> list[str]:
        """What is, or may be, left in the world, in words."""
        return [
            f"{state.entry.title}: {state.effect}"
            for state in still_applied(self.states)
            if state.effect is not Effect.NONE
        ]

    @property
    def commands(self) -> dict[str, str]:
        """The command line of each choice that is open; none where nothing is asked."""
        question = self.saga.question
        return {} if question is None else {c: self._command(c) for c in question.choices}

    def facts(self) -> dict[str, Any]:
        """Return the whole case as JSON."""
        saga = self.saga
        return {
            "saga": saga.saga_id,
            "status": str(saga.status),
            "version": saga.version,
            "is_turned_back": saga.is_turned_back,
            "question": None if saga.question is None else saga.question.reason,
            "stuck": [s.operation for s in saga.question.stuck] if saga.question else [],
            "still_applied": self.still_applied,
            "commands": self.commands,
            "owner": saga.owner,
            "due_at": None if saga.due_at is None else saga.due_at.isoformat(),
            "fault": saga.fault,
            "steps": [self._step(state) for state in self.states],
            "locks": [
                {
                    "resource": lock.resource,
                    "saga": lock.saga_id,
                    "until": lock.expires_at.isoformat(),
                }
                for lock in self.locks
            ],
            "journal": [
                {
                    "version": entry.version,
                    "at": entry.at.isoformat(),
                    "event": entry.event,
                    "who": entry.who,
                    "why": entry.why,
                    "detail": entry.detail,
                }
                for entry in self.journal
            ],
            "definition_changes": differences(saga.plan.definition, self.current),
        }

    def markdown(self) -> str:
        """Return the case for reading."""
        facts = self.facts()
        lines = [f"## {facts['saga']}: {facts['status']}, version {facts['version']}", ""]
        if facts["question"]:
            lines += [f"**{facts['question']}**", ""]
        lines += ["Still applied: " + ("; ".join(facts["still_applied"]) or "nothing"), ""]
        lines += _table(
            ["step", "do", "undo", "effect", "arguments", "receipt", "undo's receipt"],
            [
                [
                    *(s["step"], s["do"], s["undo"], s["effect"], s["arguments"]),
                    *(s["receipt"], s["undo_receipt"]),
                ]
                for s in facts["steps"]
            ],
        )
        attempts = [[a["operation"], *list(a.values())[1:]] for a in self._attempts()]
        if attempts:
            lines += _table(
                ["operation", "attempt", "outcome", "began", "ended", "error"], attempts
            )
        lines += _table(["version", "at", "event", "who", "why"], _journal(facts["journal"]))
        lines += [f"* {change}" for change in facts["definition_changes"]]
        lines += [f"* `{command}`: {_MEANING[Choice(c)]}" for c, command in self.commands.items()]
        return "\n".join(lines)

    def _step(self, state: StepState) -> dict[str, Any]:
        entry = state.entry
        names = {entry.operation(direction) for direction in Direction}
        return {
            "step": entry.title,
            "do": str(state.do),
            "undo": str(state.undo),
            "effect": str(state.effect),
            "arguments": entry.arguments,
            "receipt": state.receipt,
            "undo_receipt": self._result(entry.operation(Direction.UNDO)),
            "problem": state.do_reason or state.undo_reason or None,
            "attempts": [a for a in self._attempts() if a["operation"] in names],
        }

    def _result(self, operation: str) -> Json:
        """Return what an operation returned; of an undo, such as a fee."""
        found = (t.state.result for t in self.trails if t.state.operation == operation)
        return next(found, None)

    def _attempts(self) -> list[dict[str, Any]]:
        return [
            _attempt(trail.state.operation, attempt)
            for trail in self.trails
            for attempt in trail.attempts
        ]

    def _command(self, choice: Choice) -> str:
        base = f"backfill-assets saga decide {self.saga.saga_id} {choice}"
        more = ""
        if choice is Choice.REPLACE:
            stuck = self.saga.question.stuck[0].step if self.saga.question else "STEP"
            more = f" --step {stuck.partition('@')[0]} --arguments 'JSON'"
        return f"{base} --version {self.saga.version}{more} --why 'WHY'"


def _attempt(operation: str, attempt: AttemptRecord) -> dict[str, Any]:
    error = f"{attempt.error_type}: {attempt.error_message}" if attempt.error_type else attempt.note
    return {
        "operation": operation,
        "attempt": attempt.number,
        "outcome": str(attempt.outcome),
        "started_at": attempt.started_at.isoformat(),
        "ended_at": attempt.ended_at.isoformat() if attempt.ended_at else None,
        "error": error,
    }


def _journal(entries: Sequence[dict[str, Any]]) -> list[list[Any]]:
    return [[e["version"], e["at"], e["event"], e["who"], e["why"]] for e in entries]


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    return [
        _row(head),
        _row(["---"] * len(head)),
        *(_row(["" if cell is None else cell for cell in row]) for row in rows),
        "",
    ]


def _row(cells: Sequence[Any]) -> str:
    texts = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(texts)} |"
