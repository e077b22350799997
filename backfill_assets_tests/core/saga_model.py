"""A model of everything around the decisions of a saga: the log, the world, processes and people.

What a saga decides is the real code. Around it, each process is a generator that can be killed,
stopped for as long as one likes, or woken up when everything is over, between any two things that
it does; each thing is one that a database or a remote does in one go.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from backfill_assets.core.operations import Kind
from backfill_assets.core.saga_decisions import (
    Act,
    Ask,
    Finish,
    Question,
    TurnBack,
    Wait,
    next_of,
    still_applied,
)
from backfill_assets.core.saga_plans import Allowance, Entry, SagaPlan, make_plan
from backfill_assets.core.sagas import (
    Choice,
    Direction,
    OnFailure,
    Retries,
    SagaDefinition,
    SagaStatus,
    Step,
)
from backfill_assets.core.step_states import OperationFacts, StepState, step_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets.core.saga_decisions import Task

START = datetime(2013, 8, 3, tzinfo=UTC)
LEASE = timedelta(seconds=10)
TIMEOUT = timedelta(seconds=20)
NAMES = ("a", "b", "c", "d")
TWICE = Retries(max_attempts=2, jitter=0)


@dataclass(frozen=True)
class Mutation:
    """What is broken on purpose; a sound program has none of it."""

    seals: bool = True
    fences: bool = True
    undoes_from_snapshot: bool = False
    alerts_in_transaction: bool = True


SOUND = Mutation()


class WrongError(Exception):
    """The world is not as it must be."""


@dataclass
class Operation:
    """A row of the log."""

    attempt: int = 0
    spent: int = 0
    is_completed: bool = False
    is_running: bool = False
    in_doubt: bool = False
    is_sealed: bool = False
    lease_until: datetime | None = None
    retry_at: datetime | None = None
    error: str | None = None

    def facts(self) -> OperationFacts:
        return OperationFacts(
            attempt=self.attempt,
            spent=self.spent,
            is_completed=self.is_completed,
            is_running=self.is_running,
            is_in_doubt=self.in_doubt,
            is_sealed=self.is_sealed,
            lease_until=self.lease_until,
            retry_at=self.retry_at,
            error_type=self.error,
            error=self.error,
        )


@dataclass
class Log:
    """The idempotency log of one saga."""

    fences: bool
    rows: dict[str, Operation] = field(default_factory=dict)

    def facts(self) -> dict[str, OperationFacts]:
        return {name: row.facts() for name, row in self.rows.items()}

    def claim(self, name: str, allowed: int, now: datetime) -> tuple[int, bool] | None:
        """Return the number of a new attempt, and whether an earlier one is in doubt."""
        row = self.rows.setdefault(name, Operation())
        is_believed = row.is_running and row.lease_until is not None and row.lease_until > now
        backs_off = not row.is_running and row.retry_at is not None and row.retry_at > now
        if row.is_completed or row.is_sealed or is_believed or backs_off or row.spent >= allowed:
            return None
        row.in_doubt = row.in_doubt or row.is_running
        row.attempt += 1
        row.spent += 1
        row.is_running, row.lease_until, row.error = True, now + TIMEOUT, None
        return row.attempt, row.in_doubt

    def owns(self, name: str, attempt: int) -> bool:
        row = self.rows[name]
        is_own = row.attempt == attempt and row.is_running and not row.is_sealed
        return is_own or not self.fences

    def complete(self, name: str, attempt: int) -> bool:
        row = self.rows[name]
        if not self.owns(name, attempt):
            return False
        row.is_completed, row.is_running, row.in_doubt, row.lease_until = True, False, False, None
        return True

    def fail(self, name: str, attempt: int, error: str, retry_at: datetime) -> None:
        row = self.rows[name]
        if row.attempt != attempt or not row.is_running or row.is_sealed:
            return
        row.is_running, row.lease_until = False, None
        row.in_doubt = row.in_doubt or error == "Unknown"
        row.error, row.retry_at = error, retry_at

    def seal(self, name: str) -> bool:
        """Seal, and return whether it has happened or may have."""
        row = self.rows.setdefault(name, Operation())
        row.in_doubt = row.in_doubt or row.is_running
        row.is_running, row.lease_until, row.is_sealed = False, None, True
        return row.is_completed or row.in_doubt


@dataclass
class Saga:
    """A row of the table of sagas."""

    plan: SagaPlan
    status: SagaStatus = SagaStatus.RUNNING
    version: int = 1
    is_turned_back: bool = False
    owner: int | None = None
    due_at: datetime | None = START
    question: Question | None = None


@dataclass
class Thing:
    """What one entry of the plan has done to the world."""

    is_applied: bool = False
    is_tombstoned: bool = False
    is_foreign: bool = False  # somebody else changed it since
    applications: int = 0
    balance_before: int = 0  # a snapshot, for the program that is wrong


class Simulation:
    """One random history of one saga.

    Args:
        seed: The same seed gives the same history.
    """

    def __init__(self, seed: int, mutation: Mutation = SOUND) -> None:
        self.chance = random.Random(seed)
        self.mutation = mutation
        self.now = START
        self.log = Log(mutation.fences)
        definition = random_definition(self.chance)
        self.saga = Saga(make_plan(definition, dict.fromkeys(s.name for s in definition.steps)))
        self.world: dict[str, Thing] = {}
        self.balance = self.foreign = 0  # a counter that every entry adds 1 to, and others too
        self.alerts: set[int] = set()
        self.processes: list[Iterator[None]] = []
        self.stopped: list[Iterator[None]] = []
        self.happened: Counter[str] = Counter()
        self.is_calm = False
        self._names = 0

    def run(self) -> None:
        """Play a history to its end.

        Raises:
            WrongError: an invariant does not hold.
        """
        for _ in range(self.chance.randint(10, 150)):
            self.happen()
            self.check()
        self.end()
        self.processes += self.stopped  # whoever slept through all of it wakes up now
        self.stopped = []
        self.end()
        self.check_end()

    def end(self) -> None:
        """Let no further fault happen, until nobody has anything to do."""
        self.is_calm = True
        for _ in range(2_000):
            if self.processes:
                self.step(self.chance.randrange(len(self.processes)))
            elif self.saga.due_at is not None:
                self.now = max(self.now, self.saga.due_at)
                self.processes.append(self.drive())
            elif self.saga.status is SagaStatus.AWAITING_DECISION:
                self.check()
                self.person()
            else:
                return
            self.check()
        raise WrongError("it never comes to an end")

    def happen(self) -> None:
        """Have one thing happen: mostly a step of somebody, now and then a misfortune."""
        draw = self.chance.random()
        if draw < 0.10 or not self.processes:
            self.processes.append(self.drive())
        elif draw < 0.18:
            self.now += timedelta(seconds=self.chance.choice((1, 5, 30, 90)))
        elif draw < 0.21:
            self.processes.pop(self.chance.randrange(len(self.processes)))
            self.happened["killed"] += 1
        elif draw < 0.25:
            one = self.processes.pop(self.chance.randrange(len(self.processes)))
            self.stopped.append(one)
            self.happened["stopped"] += 1
        elif draw < 0.29 and self.stopped:
            self.processes.append(self.stopped.pop(self.chance.randrange(len(self.stopped))))
        elif draw < 0.295:
            self.cancel()
        elif draw < 0.33:
            self.person()
        elif draw < 0.35:
            self.meddle()
        else:
            self.step(self.chance.randrange(len(self.processes)))

    def step(self, number: int) -> None:
        try:
            next(self.processes[number])
        except StopIteration:
            self.processes.pop(number)

    # A process that drives the saga.

    def drive(self) -> Iterator[None]:
        saga = self.saga
        self._names += 1
        name = self._names
        if saga.due_at is None or saga.due_at > self.now:
            return
        self.save(owner=name, due_at=self.now + LEASE)
        version = saga.version
        while saga.version == version and saga.owner == name and saga.status.is_moving:
            yield
            facts, plan, status = self.log.facts(), saga.plan, saga.status
            states = self.states(facts)
            yield  # from here on it may be wrong about the world
            if saga.version != version:
                return
            match next_of(plan, status, states, self.now):
                case Act(tasks):
                    self.save(due_at=self.now + TIMEOUT + timedelta(seconds=5))
                    version = saga.version
                    yield
                    for task in tasks:
                        yield from self.execute(plan, task)
                case Wait(until):
                    self.save(owner=None, due_at=until)
                case TurnBack():
                    if not self.turn_back():
                        self.save(owner=None, due_at=self.now + timedelta(seconds=1))
                    else:
                        self.save(owner=name)
                        version = saga.version
                case Ask(question):
                    yield from self.ask(question)
                case Finish(end):
                    self.save(status=end, owner=None, due_at=None)

    def execute(self, plan: SagaPlan, task: Task) -> Iterator[None]:
        step, operation = task.entry.step, task.operation
        allowance = plan.allowances.get(operation)
        allowed = allowance.attempts if allowance else TWICE.max_attempts
        if operation in plan.accepted:
            allowed = 1_000  # writing down what a person vouches for costs nothing
        claim = self.log.claim(operation, allowed, self.now)
        if claim is None:
            return
        attempt, in_doubt = claim
        deadline = self.now + TIMEOUT
        yield
        if step.kind is Kind.IRREVERSIBLE and self.now > deadline:
            return  # by contract no request outlives its deadline; this one cannot be refused later
        is_repeatable = step.kind is not Kind.IRREVERSIBLE or not in_doubt
        is_vouched = allowance is not None and allowance.forgiven >= attempt - 1
        if operation in plan.accepted:
            self.log.complete(operation, attempt)
            return
        if task.direction is Direction.DO and not (is_repeatable or is_vouched):
            self.log.fail(operation, attempt, "TryAgainError", self.now)
            return
        fault = self.fault()
        if fault in ("refused", "before"):
            error = "StepRefusedError" if fault == "refused" else "Unknown"
            is_transaction = step.kind is Kind.TRANSACTIONAL
            self.log.fail(operation, attempt, "Error" if is_transaction else error, self.retry())
            return
        error = ""
        if step.kind is Kind.TRANSACTIONAL:
            # Its effect and its record come into the world together, or not at all.
            if self.log.owns(operation, attempt):
                error = self.affect(task)
        else:
            error = self.affect(task)
            yield
        if fault == "after" and step.kind is not Kind.TRANSACTIONAL:
            self.log.fail(operation, attempt, "Unknown", self.retry())
        elif error:
            self.log.fail(operation, attempt, error, self.now)
        else:
            self.log.complete(operation, attempt)

    def affect(self, task: Task) -> str:
        """Change the world; return the error of what refuses."""
        title = task.entry.title
        thing = self.world.setdefault(title, Thing())
        if task.direction is Direction.DO:
            return self.apply(task.entry, thing)
        self.check_order(task.entry)
        if self.mutation.undoes_from_snapshot:
            # As it was before: of the thing, and of the counter.
            self.balance = thing.balance_before if thing.is_applied else self.balance
            thing.is_applied, thing.is_foreign, thing.is_tombstoned = False, False, True
            return ""
        if thing.is_foreign and thing.is_applied:
            self.happened["conflict"] += 1
            return "ConflictError"
        if thing.is_applied:
            self.balance -= 1
        # Rows can be written again; a remote and a file keep out what comes late.
        is_kept_out = task.entry.step.kind is not Kind.TRANSACTIONAL
        thing.is_applied, thing.is_tombstoned = False, is_kept_out
        return ""

    def apply(self, entry: Entry, thing: Thing) -> str:
        if thing.is_tombstoned:
            self.happened["late"] += 1
            return "StepRefusedError"
        if not thing.is_applied or entry.step.kind is Kind.IRREVERSIBLE:
            thing.balance_before = self.balance
            thing.applications += 1
            self.balance += 1
        thing.is_applied = True
        return ""

    def fault(self) -> str:
        if self.is_calm:
            return ""
        return self.chance.choices(("", "refused", "before", "after"), weights=(4, 1, 1, 1))[0]

    def retry(self) -> datetime:
        return self.now + timedelta(seconds=self.chance.choice((0, 1, 10)))

    # What is done to the row of the saga, each in one transaction.

    def save(self, **values: object) -> None:
        for name, value in values.items():
            setattr(self.saga, name, value)
        self.saga.version += 1

    def turn_back(self) -> bool:
        """Seal every step and turn round, unless an irreversible one may have happened."""
        entries = self.saga.plan.every_entry
        facts = self.log.facts()
        for entry in entries:
            found = facts.get(entry.operation(Direction.DO), OperationFacts())
            may_stand = found.is_completed or found.is_in_doubt or found.is_running
            if entry.step.kind is Kind.IRREVERSIBLE and may_stand:
                return False
        if self.mutation.seals:
            for entry in entries:
                self.log.seal(entry.operation(Direction.DO))
        self.save(
            status=SagaStatus.COMPENSATING,
            is_turned_back=True,
            question=None,
            owner=None,
            due_at=self.now,
        )
        self.happened["turned back"] += 1
        return True

    def ask(self, question: Question) -> Iterator[None]:
        self.save(status=SagaStatus.AWAITING_DECISION, question=question, owner=None, due_at=None)
        version = self.saga.version
        if not self.mutation.alerts_in_transaction:
            yield
        self.alerts.add(version)
        self.happened["asked"] += 1

    # What people do.

    def cancel(self) -> None:
        if not self.saga.is_turned_back and self.turn_back():
            self.happened["cancelled"] += 1

    def meddle(self) -> None:
        """Somebody else changes what a step has made, and the counter that all share."""
        self.balance += 1
        self.foreign += 1
        standing = [t for t in self.world.values() if t.is_applied]
        if standing and self.chance.random() < 0.3:
            self.chance.choice(standing).is_foreign = True

    def person(self) -> None:
        """Decide, having looked at the world."""
        saga = self.saga
        if saga.question is None:
            return
        if Choice.COMPENSATE in saga.question.choices and self.chance.random() < 0.4:
            self.turn_back()
            return
        plan, facts = saga.plan, self.log.facts()
        for stuck in saga.question.stuck:
            entry = plan.entry_titled(stuck.step)
            thing = self.world.setdefault(stuck.step, Thing())
            is_undo = stuck.operation == entry.operation(Direction.UNDO)
            if is_undo and thing.is_foreign:
                # Mended by hand: what the step did is taken back, the rest of it left.
                self.balance -= int(thing.is_applied)
                thing.is_applied, thing.is_tombstoned, thing.is_foreign = False, True, False
                plan = plan.with_accepted(stuck.operation, "by hand")
            elif not is_undo and thing.is_applied:
                plan = plan.with_accepted(stuck.operation, "looked at it")
            elif (
                not is_undo
                and Choice.REPLACE in saga.question.choices
                and entry.step.kind is not Kind.IRREVERSIBLE
                and entry.revision < 3
                and self.chance.random() < 0.4
            ):
                self.log.seal(entry.operation(Direction.DO))
                plan = plan.with_replaced(entry.step.name, None)
                self.happened["replaced"] += 1
            else:
                known = facts.get(stuck.operation, OperationFacts())
                allowance = Allowance(known.spent + TWICE.max_attempts, known.attempt)
                plan = plan.with_allowance(stuck.operation, allowance)
        self.happened["decided"] += 1
        moving = SagaStatus.COMPENSATING if saga.is_turned_back else SagaStatus.RUNNING
        self.save(plan=plan, status=moving, question=None, due_at=self.now)

    # What must hold.

    def states(self, facts: dict[str, OperationFacts]) -> list[StepState]:
        names = {n for s in self.saga.plan.definition.steps for n in (s.do, s.undo) if n}
        return step_states(self.saga.plan, facts, self.now, known=names, verifiable=())

    def check(self) -> None:
        saga = self.saga
        if saga.status.is_moving and saga.due_at is None:
            raise WrongError("it sleeps for ever")
        for title, thing in self.world.items():
            kind = saga.plan.entry_titled(title).step.kind
            if kind is Kind.IRREVERSIBLE and thing.applications > 1:
                raise WrongError(f"{title} was done twice")
        applied = {t for t, thing in self.world.items() if thing.is_applied}
        if saga.status is SagaStatus.AWAITING_DECISION:
            if saga.version not in self.alerts and self.is_alone():
                raise WrongError("it asks, and nobody is told")
            said = {s.entry.title for s in still_applied(self.states(self.log.facts()))}
            if applied - said:
                raise WrongError(f"{applied - said} is left, and the case file says {said}")
        if saga.status is SagaStatus.COMPENSATED and applied:
            raise WrongError(f"it is compensated, and {applied} is left")

    def is_alone(self) -> bool:
        """Whether no process is between the change and the alert: killed ones never come back."""
        return not self.processes and not self.stopped

    def check_order(self, entry: Entry) -> None:
        """What depends on a step, and is not to be undone later by its number, went before."""
        plan = self.saga.plan
        for other in plan.every_entry:
            is_dependent = plan.comes_after(other, entry)
            is_first = other.step.undo_order <= entry.step.undo_order
            is_left = self.world.get(other.title, Thing()).is_applied
            if self.saga.is_turned_back and is_dependent and is_first and is_left:
                raise WrongError(f"{entry.title} is undone while {other.title} stands")

    def check_end(self) -> None:
        saga = self.saga
        applied = {t for t, thing in self.world.items() if thing.is_applied}
        self.check()
        if saga.status is SagaStatus.COMPLETED:
            current = {entry.title for entry in saga.plan.entries}
            if applied != current:
                raise WrongError(f"it is completed, and {applied} stands instead of {current}")
        for row in self.log.rows.values():
            if row.is_running and row.lease_until and row.lease_until > self.now + TIMEOUT:
                raise WrongError("an attempt is believed for ever")
        if self.balance != len(applied) + self.foreign:
            raise WrongError(
                f"the counter shows {self.balance}; {len(applied)} and {self.foreign} of others"
            )
        self.happened[str(saga.status)] += 1


def random_definition(chance: random.Random) -> SagaDefinition:
    """Return a saga of one to four steps, of any kinds and in any order that may be defined."""
    count = chance.randint(1, 4)
    pivot = chance.randrange(count) if chance.random() < 0.3 else None
    steps = []
    for number, name in enumerate(NAMES[:count]):
        is_after_pivot = pivot is not None and number > pivot
        before = NAMES[:number]
        after = tuple(one for one in before if chance.random() < 0.6)
        kind = chance.choice((Kind.TRANSACTIONAL, Kind.REMOTE, Kind.ARTIFACT))
        if pivot is not None:
            after = before if number == pivot else tuple({*after, NAMES[pivot]} & {*before})
            kind = Kind.IRREVERSIBLE if number == pivot else kind
        on_failure = OnFailure.FORWARD_ONLY if is_after_pivot else None
        steps.append(
            Step(
                name=name,
                kind=kind,
                do=f"do_{name}",
                undo=None if kind is Kind.IRREVERSIBLE else f"undo_{name}",
                after=tuple(sorted(after)),
                undo_order=chance.choice((0, 0, 0, 1, -1)),
                on_failure=on_failure,
                timeout=TIMEOUT,
                retries=TWICE,
                undo_retries=TWICE,
                is_deduplicated=kind is Kind.REMOTE,
            )
        )
    on_failure = chance.choice((OnFailure.COMPENSATE, OnFailure.COMPENSATE, OnFailure.ASK))
    return SagaDefinition(name="any", steps=tuple(steps), on_failure=on_failure)


def play(seeds: range, mutation: Mutation = SOUND) -> Counter[str]:
    """Play a history for each seed; return how often what happened in them.

    Raises:
        WrongError: names the seed of the first history in which an invariant did not hold.
    """
    happened: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(seed, mutation)
        try:
            simulation.run()
        except WrongError as error:
            raise WrongError(f"seed {seed}: {error}") from error
        happened += simulation.happened
    return happened
