"""What a person decides about a saga that waits: checked, and stored in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backfill_assets.core.errors import SagaArgumentsError, SagaStateError, SagaVersionError
from backfill_assets.core.operations import Kind
from backfill_assets.core.saga_codec import plan_facts
from backfill_assets.core.saga_plans import Allowance
from backfill_assets.core.sagas import Choice, Direction, SagaStatus
from backfill_assets.stores.sagas.execution import operation_of
from backfill_assets.stores.sagas.store import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import psycopg

    from backfill_assets.core.operations import Json
    from backfill_assets.core.saga_decisions import Question, Stuck
    from backfill_assets.core.saga_plans import Entry, SagaPlan
    from backfill_assets.stores.sagas.driver import Driver
    from backfill_assets.stores.sagas.rows import Saga


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person wants, and who it is.

    Attributes:
        step: Of REPLACE; and of the others, where they are about one of several that are stuck.
        arguments: Of REPLACE: the step's new ones.
        receipt: Of ACCEPT: what doing the step would have returned.
    """

    choice: Choice
    who: str
    why: str
    step: str | None = None
    arguments: Json = None
    receipt: Json = None

    @property
    def record(self) -> Record:
        """What the journal says about it."""
        detail: Json = {"choice": str(self.choice), "step": self.step}
        return Record(event="decided", who=self.who, why=self.why, detail=detail)


@dataclass(frozen=True, slots=True)
class Deciding:
    """Stores decisions; what follows from one is up to whoever drives the saga next."""

    driver: Driver

    def decide(self, saga: Saga, version: int, decision: Decision) -> Saga:
        """Store a decision, if the saga still waits as it did when it was looked at.

        Raises:
            SagaVersionError: it has moved on since.
            SagaStateError: it does not wait, or this is not one of its choices.
            SagaArgumentsError: the step or its new arguments do not fit.
        """
        question = _question(saga, version, decision.choice)
        if decision.choice is Choice.COMPENSATE:
            return self.driver.turn_back(saga, decision.record, owner=None)
        if decision.choice is Choice.REPLACE:
            return self._replace(saga, _stuck_step(question, decision.step), decision)
        chosen = _chosen(question, decision.step)
        change = self._accepting if decision.choice is Choice.ACCEPT else self._retrying
        return self._go_on(saga, change(saga, chosen, decision), decision)

    def _replace(self, saga: Saga, step: str, decision: Decision) -> Saga:
        plan = saga.plan
        old = plan.entry(step)
        if old.step.kind is Kind.IRREVERSIBLE:
            message = f"step {step!r} is irreversible: retry it, or accept that it is done"
            raise SagaStateError(message)
        replaced = plan.with_replaced(step, decision.arguments)
        _ = replaced.locks  # refused now if a lock cannot be named
        operation = operation_of(plan, old, Direction.DO)
        reason = f"replaced by {decision.who}: {decision.why}"

        def seal(connection: psycopg.Connection) -> None:
            self.driver.log.seal(operation, saga.saga_id, reason=reason, connection=connection)

        return self._go_on(saga, replaced, decision, also=seal)

    def _retrying(self, saga: Saga, stuck: Collection[Stuck], _decision: Decision) -> SagaPlan:
        plan, facts = saga.plan, self.driver.facts(saga)
        for one in stuck:
            known = facts.get(one.operation)
            entry, direction = _entry_of(plan, one)
            step = entry.step
            retries = step.retries if direction is Direction.DO else step.undo_retries
            allowance = Allowance(
                attempts=(known.spent if known else 0) + retries.max_attempts,
                forgiven=known.attempt if known else 0,
            )
            plan = plan.with_allowance(one.operation, allowance)
        return plan

    def _accepting(self, saga: Saga, stuck: Collection[Stuck], decision: Decision) -> SagaPlan:
        vouched: Json = {"accepted_by": decision.who, "why": decision.why}
        plan = saga.plan
        for one in stuck:
            receipt = vouched if decision.receipt is None else decision.receipt
            plan = plan.with_accepted(one.operation, receipt)
        return plan

    def _go_on(
        self,
        saga: Saga,
        plan: SagaPlan,
        decision: Decision,
        *,
        also: Callable[[psycopg.Connection], object] | None = None,
    ) -> Saga:
        now = self.driver.clock()
        going_on = replace(
            saga,
            status=SagaStatus.COMPENSATING if saga.is_turned_back else SagaStatus.RUNNING,
            stored_plan=plan_facts(plan),
            question=None,
            due_at=now,
            faults=0,
            fault=None,
        )
        return self.driver.store.save(going_on, now, record=decision.record, also=also)


def _question(saga: Saga, version: int, choice: Choice) -> Question:
    if saga.question is None:
        raise SagaStateError(f"saga {saga.saga_id} is {saga.status}: there is nothing to decide")
    if saga.version != version:
        message = (
            f"saga {saga.saga_id} is at version {saga.version}, and {version} was looked at; look "
            "at it again"
        )
        raise SagaVersionError(message)
    if choice not in saga.question.choices:
        possible = ", ".join(saga.question.choices)
        message = f"saga {saga.saga_id}: {choice} is not possible; there is {possible}"
        raise SagaStateError(message)
    return saga.question


def _chosen(question: Question, step: str | None) -> list[Stuck]:
    """Return what a decision is about: one of several, or all that is stuck."""
    if step is None:
        return list(question.stuck)
    _stuck_step(question, step)
    return [one for one in question.stuck if _name(one) == step]


def _stuck_step(question: Question, step: str | None) -> str:
    """Return the step that a decision is about.

    Raises:
        SagaArgumentsError: it is not one of those that are stuck, or none is named.
    """
    stuck = [_name(one) for one in question.stuck]
    if step not in stuck:
        found = "none is named" if step is None else f"{step!r} is not stuck"
        raise SagaArgumentsError(f"{found}; name one of {', '.join(stuck) or 'no step'}")
    return step


def _name(stuck: Stuck) -> str:
    return stuck.step.partition("@")[0]


def _entry_of(plan: SagaPlan, stuck: Stuck) -> tuple[Entry, Direction]:
    entry = plan.entry_titled(stuck.step)
    is_do = stuck.operation == entry.operation(Direction.DO)
    return entry, Direction.DO if is_do else Direction.UNDO
