"""Random histories of operations, on the real log, beside a model of a few lines that predicts it.

A history is one key. In each step every history draws what happens to it, and what is drawn by many
is one call of the log for all of them: so ten thousand histories take seconds. Workers claim, act,
crash, stall and come back late, twice, or as somebody else; leases run out; people seal and reopen.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets.core.operations import (
    Busy,
    Claimed,
    Done,
    Kind,
    Operation,
    Outcome,
    Policy,
    Refused,
)
from backfill_assets_tests.stores.log.world import Clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from backfill_assets.core.operations import Attempt
    from backfill_assets.stores.log.log import IdempotencyLog
    from backfill_assets_tests.stores.log.world import World

POLICY = Policy(max_attempts=6, lease=timedelta(seconds=30), first_wait=timedelta(seconds=5))
OPERATIONS = (
    Operation(name="write", kind=Kind.TRANSACTIONAL, policy=POLICY),
    Operation(name="file", kind=Kind.ARTIFACT, policy=POLICY),
    Operation(name="call", kind=Kind.REMOTE, policy=POLICY, is_deduplicated=True),
    Operation(name="asked", kind=Kind.REMOTE, policy=POLICY),  # the remote can be asked
    Operation(name="pay", kind=Kind.IRREVERSIBLE, policy=POLICY),
)
ACTIONS = {
    "claim": 30,
    "act": 14,
    "complete": 14,
    "fail": 6,
    "crash": 5,
    "renew": 4,
    "reopen": 2,
    "disprove": 2,
    "seal": 1,
    "nothing": 22,
}
WORKERS = ("north", "south", "north")  # a name is used again by a successor


@dataclass
class Model:
    """What the log should say of one operation."""

    status: str = ""  # nothing claimed it yet
    number: int = 0
    generation: int = 1
    spent: int = 0
    in_doubt: bool = False
    lease_until: datetime | None = None
    retry_at: datetime | None = None
    result: Any = None
    is_sealed: bool = False

    def may_start(self, now: datetime) -> bool:
        """Return whether another attempt may start."""
        if self.status == "":
            return True
        free_at = {"PROCESSING": self.lease_until, "FAILED": self.retry_at}.get(self.status)
        is_free = free_at is not None and free_at <= now
        return is_free and not self.is_sealed and self.spent < 6

    def start(self, now: datetime) -> None:
        """Start an attempt."""
        self.in_doubt |= self.status == "PROCESSING"
        self.status, self.number, self.spent = "PROCESSING", self.number + 1, self.spent + 1
        self.lease_until, self.retry_at = now + POLICY.lease, None

    def owns(self, number: int) -> bool:
        """Return whether an attempt may still complete or fail."""
        return self.status == "PROCESSING" and self.number == number

    def end(self, *, in_doubt: bool, retry_at: datetime | None) -> None:
        """End the attempt at work."""
        self.status, self.in_doubt = "FAILED", self.in_doubt or in_doubt
        self.lease_until, self.retry_at = None, retry_at


@dataclass
class History:
    """One key: what the log should say, who holds attempts, and what really happened.

    Attributes:
        hands: Attempts that a worker, dead or alive, may still come back with.
        sent: Attempts that have acted.
        effects: How often the effect happened, by generation and how often it was taken back.
    """

    key: str
    operation: Operation
    draw: random.Random
    model: Model = field(default_factory=Model)
    hands: list[Attempt] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)
    effects: Counter[tuple[int, int]] = field(default_factory=Counter)
    disproved: int = 0
    remote: set[str] = field(default_factory=set)
    ends: dict[int, str] = field(default_factory=dict)

    @property
    def era(self) -> tuple[int, int]:
        """What may happen once: a generation, until its artifact is found missing."""
        return (self.model.generation, self.disproved)

    def act(self, attempt: Attempt) -> None:
        """Act once for an attempt, as the kind of the operation allows it."""
        if attempt.number in self.sent or self.operation.kind in {
            Kind.TRANSACTIONAL,
            Kind.ARTIFACT,
        }:
            return
        self.sent.add(attempt.number)
        if self.operation.is_deduplicated:
            if attempt.remote_key in self.remote:
                return
            self.remote.add(attempt.remote_key)
        self.effects[(attempt.generation, 0)] += 1


class Simulator:
    """Runs histories in step.

    Args:
        seed: Draws everything.
    """

    def __init__(self, world: World, histories: int, seed: int) -> None:
        self.clock = Clock()
        self.draw = random.Random(seed)
        self.logs = [_log(world, name, self.clock) for name in WORKERS]
        self.histories = [
            History(f"{seed}-{number}", OPERATIONS[number % 5], random.Random(f"{seed}-{number}"))
            for number in range(histories)
        ]

    def run(self, steps: int) -> Counter[str]:
        """Let so many steps pass, then finish everything; return what happened how often."""
        seen: Counter[str] = Counter()
        for step in range(steps):
            self.clock.forward(timedelta(seconds=self.draw.choice((0, 1, 5, 31))))
            self._step(seen)
            if self.draw.random() < 0.3:
                self._supervise(seen)
            if step % 5 == 0:
                self.compare()
        self._finish(seen)
        self.compare()
        return seen

    def compare(self) -> None:
        """Check that the log says what the model says, of every history."""
        for operation, histories in self._by_operation(self.histories).items():
            known = [h for h in histories if h.model.status]
            states = self.logs[0].states([h.key for h in known], [operation.name])
            found = {s.key: s for s in states}
            assert found.keys() == {h.key for h in known}
            for history in known:
                state, model = found[history.key], history.model
                assert (
                    state.status,
                    state.attempt,
                    state.generation,
                    state.spent,
                    state.in_doubt,
                ) == (model.status, model.number, model.generation, model.spent, model.in_doubt), (
                    history
                )
                assert (state.result, state.is_sealed) == (model.result, model.is_sealed), history

    def _step(self, seen: Counter[str]) -> None:
        drawn: dict[str, list[History]] = defaultdict(list)
        for history in self.histories:
            (action,) = history.draw.choices(list(ACTIONS), list(ACTIONS.values()))
            drawn[action].append(history)
        log = self.draw.choice(self.logs)
        for action, histories in drawn.items():
            for operation, some in self._by_operation(histories).items():
                if perform := getattr(self, f"_{action}", None):
                    seen[action] += perform(log, operation, some)

    def _claim(self, log: IdempotencyLog, operation: Operation, histories: list[History]) -> int:
        answers = log.claim_many(operation, {h.key: h.key for h in histories})
        for history in histories:
            model, answer, now = history.model, answers[history.key], self.clock.now
            if isinstance(answer, Claimed):
                assert model.may_start(now), (history, answer)
                model.start(now)
                self._started(log, history, answer.attempt)
            elif isinstance(answer, Done):
                assert (model.status, model.result) == ("COMPLETED", answer.result), history
                assert not model.is_sealed
            else:
                assert not model.may_start(now), (history, answer)
                assert isinstance(answer, Refused if model.is_sealed else (Busy, Refused)), history
        return sum(isinstance(answer, Claimed) for answer in answers.values())

    def _started(self, log: IdempotencyLog, history: History, attempt: Attempt) -> None:
        model = history.model
        assert attempt.number == model.number
        assert attempt.number not in history.numbers, "a number was used again"
        assert (attempt.in_doubt, attempt.generation) == (model.in_doubt, model.generation)
        history.numbers.append(attempt.number)
        name = history.operation.name
        if attempt.in_doubt and name == "asked":
            if history.effects[history.era] == 0:
                log.settle(attempt)  # nothing happened: those who are late do not send any more
                history.sent.update(history.numbers[:-1])
                model.in_doubt = False
            else:
                history.sent.add(attempt.number)  # found: it completes with what is there
        if attempt.in_doubt and name == "pay":
            history.sent.add(attempt.number)  # nobody can tell: it does not act
            assert log.fail_many([attempt], OSError("nobody can tell")) != {}
            model.end(in_doubt=False, retry_at=self._retry_at(model))
            return
        history.hands.append(attempt)

    def _retry_at(self, model: Model) -> datetime | None:
        if model.spent >= 6:
            return None
        return self.clock.now + POLICY.wait_after(model.spent, 0.0)

    def _act(self, _log: IdempotencyLog, _: Operation, histories: list[History]) -> int:
        for history in histories:
            for attempt in _one_of(history):
                if history.operation.name in {"asked", "pay"} and not history.model.owns(
                    attempt.number
                ):
                    continue  # too late by the remote's own window
                history.act(attempt)
        return 0

    def _complete(self, log: IdempotencyLog, operation: Operation, some: list[History]) -> int:
        late = {attempt: history for history in some for attempt in _one_of(history)}
        for attempt, history in late.items():
            if operation.name not in {"asked", "pay"} or history.model.owns(attempt.number):
                history.act(attempt)
        results = {a: f"{h.key} {a.number}" for a, h in late.items()}
        fenced = set(log.complete_many(results))  # type: ignore[arg-type]
        for attempt, history in late.items():
            owned = history.model.owns(attempt.number)
            again = history.ends.get(attempt.number) == "SUCCEEDED"  # it is stored already
            assert (attempt in fenced) == (not owned and not again), (history, attempt)
            if owned:
                self._completed(history, attempt, results[attempt])
            if history.draw.random() < 0.7:  # the others send their result again
                history.hands.remove(attempt)
        return len(fenced)

    def _completed(self, history: History, attempt: Attempt, result: str) -> None:
        model = history.model
        model.status, model.result, model.in_doubt = "COMPLETED", result, False
        model.lease_until = model.retry_at = None
        history.ends[attempt.number] = "SUCCEEDED"
        if history.operation.kind in {Kind.TRANSACTIONAL, Kind.ARTIFACT}:
            history.effects[history.era] += 1

    def _fail(self, log: IdempotencyLog, operation: Operation, histories: list[History]) -> int:
        late = {attempt: history for history in histories for attempt in _one_of(history)}
        is_sure = operation.kind is Kind.TRANSACTIONAL
        outcome = Outcome.FAILED if is_sure else Outcome.UNKNOWN
        retries = log.fail_many(list(late), OSError("gone"), outcome=outcome)
        for attempt, history in late.items():
            owned = history.model.owns(attempt.number)
            assert (attempt in retries) == owned, (history, attempt)
            if owned:
                history.model.end(in_doubt=not is_sure, retry_at=self._retry_at(history.model))
            history.hands.remove(attempt)
        return len(late)

    def _crash(self, _log: IdempotencyLog, _: Operation, histories: list[History]) -> int:
        for history in histories:
            history.hands.clear()
        return len(histories)

    def _renew(self, log: IdempotencyLog, _: Operation, histories: list[History]) -> int:
        late = {attempt: history for history in histories for attempt in _one_of(history)}
        fenced = log.renew(list(late))
        for attempt, history in late.items():
            owned = history.model.owns(attempt.number)
            assert (attempt not in fenced) == owned, (history, attempt)
            if owned:
                history.model.lease_until = self.clock.now + POLICY.lease
        return len(late) - len(fenced)

    def _seal(self, log: IdempotencyLog, operation: Operation, histories: list[History]) -> int:
        for history in histories:
            model = history.model
            stood = log.seal(operation, history.key, reason="undone")
            assert stood.is_completed == (model.status == "COMPLETED")
            model.in_doubt |= model.status == "PROCESSING"
            if model.status != "COMPLETED":
                model.status = "FAILED"
            model.lease_until = model.retry_at = None
            model.is_sealed = True
            assert (stood.attempt, stood.in_doubt) == (model.number, model.in_doubt), history
        return len(histories)

    def _reopen(self, log: IdempotencyLog, operation: Operation, histories: list[History]) -> int:
        # A person finds out first: what may have happened in this generation has not, or is undone.
        is_settled = operation.name == "pay"
        asked = {h.key: h.key for h in histories if not (is_settled and _happened(h))}
        reopened = log.reopen(operation, asked, reason="again", is_settled=is_settled)  # type: ignore[arg-type]
        for history in histories:
            model = history.model
            may = model.status in {"COMPLETED", "FAILED"} and not model.is_sealed
            assert (history.key in reopened) == (may and history.key in asked), history
            if history.key not in reopened:
                continue
            if model.status == "COMPLETED":
                model.generation += 1
            model.status, model.spent, model.result = "FAILED", 0, None
            model.in_doubt &= not is_settled
            model.retry_at = self.clock.now
        return len(reopened)

    def _disprove(self, log: IdempotencyLog, operation: Operation, some: list[History]) -> int:
        if operation.kind is not Kind.ARTIFACT:
            return 0
        looked_at = {h.key: h.draw.choice(h.numbers) for h in some if h.numbers}
        answers = log.claim_many(operation, {k: k for k in looked_at}, disproved=looked_at)
        for history in some:
            if history.key not in looked_at:
                continue
            model, number = history.model, looked_at[history.key]
            is_stored = (model.status, model.number) == ("COMPLETED", number)
            if is_stored and not model.is_sealed:
                model.status, model.spent, model.result = "FAILED", 0, None
                model.retry_at = self.clock.now
                history.disproved += 1
            answer = answers[history.key]
            assert isinstance(answer, Claimed) == model.may_start(self.clock.now), history
            if isinstance(answer, Claimed):
                model.start(self.clock.now)
                self._started(log, history, answer.attempt)
        return len(looked_at)

    def _supervise(self, seen: Counter[str]) -> None:
        ended = set(self.draw.choice(self.logs).supervise())
        for history in self.histories:
            model = history.model
            expired = model.status == "PROCESSING" and model.lease_until is not None
            expired = expired and model.lease_until <= self.clock.now  # type: ignore[operator]
            assert ((history.key, history.operation.name) in ended) == expired, history
            if expired:
                model.end(in_doubt=True, retry_at=self.clock.now)
        seen["supervised"] += len(ended)

    def _finish(self, seen: Counter[str]) -> None:
        """Let everybody come back, then finish what a person lets go on; nothing may be lost."""
        log = self.logs[0]
        for operation, histories in self._by_operation(self.histories).items():
            while any(history.hands for history in histories):
                self._complete(log, operation, histories)
            self.clock.forward(timedelta(hours=2))
            self._supervise(seen)
            open_ones = [h for h in histories if h.model.status != "COMPLETED"]
            for history in (h for h in open_ones if h.operation.name == "pay" and _happened(h)):
                self._seal(log, operation, [history])  # it has happened: a person says so
            ended = [h for h in open_ones if h.model.status == "FAILED"]
            self._reopen(log, operation, ended)
            self._claim(log, operation, [h for h in open_ones if not h.model.is_sealed])
            left = [h for h in open_ones if h.hands]
            while any(history.hands for history in left):
                self._complete(log, operation, left)
            for history in histories:
                self._check_end(history)
                seen[history.model.status] += 1

    def _check_end(self, history: History) -> None:
        model = history.model
        assert model.status == "COMPLETED" or model.is_sealed, ("lost", history)
        assert all(count == 1 for count in history.effects.values()), ("twice", history)
        assert history.numbers == list(range(1, len(history.numbers) + 1)), history
        if model.status == "COMPLETED":
            assert history.effects[history.era] == 1, ("lost", history)

    def _by_operation(self, histories: list[History]) -> dict[Operation, list[History]]:
        found: dict[Operation, list[History]] = {operation: [] for operation in OPERATIONS}
        for history in histories:
            found[history.operation].append(history)
        return {operation: some for operation, some in found.items() if some}


def _log(world: World, worker: str, clock: Callable[[], datetime]) -> IdempotencyLog:
    log = world.log(worker)
    log._clock = log._ledger._clock = clock
    return log


def _one_of(history: History) -> list[Attempt]:
    return [history.draw.choice(history.hands)] if history.hands else []


def _happened(history: History) -> bool:
    return (
        history.effects[(history.model.generation, 0)] > 0 and history.model.status != "COMPLETED"
    )
