"""The idempotency log: at most one effect for an idempotency key and the name of a step.

An attempt is claimed, acts, and is completed only if it still owns its operation: its number is a
fencing token, and the fence is in the statement that stores the result. Leases decide when another
may try; the token alone decides whose result stands.

Source: the Idempotency-Key draft of the IETF's httpapi group, for the answers to duplicates.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from backfill_assets.core.operations import OperationTrail
from backfill_assets.stores.log.results import fingerprint, result_text
from backfill_assets.stores.log.runs import WRITE_TRIES, Runs
from backfill_assets.stores.log.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import Json, Operation, OperationState
    from backfill_assets.stores.log.ledger import LateAttempt, SealedState, StoredResult

__all__ = ["WRITE_TRIES", "IdempotencyLog"]


class IdempotencyLog(Runs):
    """The log in PostgreSQL.

    Args:
        url: Gives the address of the database; asked whenever a connection is opened.
        worker: Who we are, for people; the token decides.
        clock: Gives the present instant, aware. Clocks that differ make takeovers early or late,
            never an effect double.
        sleep: Waits so many seconds.
        chance: Gives a number from 0 to 1, for the jitter of waits.
    """

    def __init__(
        self,
        url: Callable[[], str],
        *,
        worker: str,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(Sessions(url, sleep), worker, clock, sleep, chance)

    def seal(
        self,
        operation: Operation,
        key: str,
        *,
        reason: str,
        connection: psycopg.Connection | None = None,
    ) -> SealedState:
        """Let no attempt start or complete any more, and return what stood; twice is once.

        Args:
            connection: In whose transaction; one of its own where it is None.
        """
        return self._ledger.seal(operation, key, reason, connection)

    def reopen(
        self,
        operation: Operation,
        payloads: Mapping[str, Json],
        *,
        reason: str,
        is_settled: bool = False,
    ) -> list[str]:
        """Let attempts start again, with a new budget; return the keys that were reopened.

        What was completed is done again in a new generation, and so is another payload; the old
        results stay in the trail. What had failed goes on in its generation, under the same remote
        key: what may have happened is still in doubt. What is at work, or sealed, stays as it is.

        Args:
            is_settled: It was found out that nothing of what is in doubt happened, or will.
        """
        prints = {key: fingerprint(payload) for key, payload in payloads.items()}
        if not prints:
            return []
        return sorted(self._ledger.reopen(operation, prints, reason, is_settled=is_settled))

    def prove(self, operation: Operation, keys: Collection[str]) -> list[str]:
        """Complete failed operations whose artifact stands all the same; return their keys."""
        return sorted(self._ledger.prove(operation, keys)) if keys else []

    def results(self, operation: Operation, keys: Collection[str]) -> dict[str, StoredResult]:
        """Return what stands stored: one read for many; keys never claimed are left out."""
        return self._ledger.results(operation, keys) if keys else {}

    def correct(
        self, operation: Operation, found: Mapping[str, tuple[int, Json]], *, reason: str
    ) -> list[str]:
        """Store what artifacts were found to be instead of what was completed; return their keys.

        The artifact is right: the old result is kept in the trail, with the reason.

        Args:
            found: The attempt whose result was looked at, and what is found instead, by key. Where
                another attempt has completed since, nothing is changed.

        Raises:
            ResultRefusedError: a result is no JSON.
        """
        texts = {key: (number, result_text(result)) for key, (number, result) in found.items()}
        return sorted(self._ledger.correct(operation, texts, reason)) if texts else []

    def supervise(
        self, operations: Collection[str] | None = None, *, grace: timedelta = timedelta(0)
    ) -> list[tuple[str, str]]:
        """End attempts whose lease ran out: they are fenced, and may be tried again.

        Args:
            operations: The names to look at; all where it is None.
            grace: For how long after its lease an owner that nobody replaced may still finish.

        Returns:
            The key and operation of each.
        """
        return self._ledger.supervise(self._clock() - grace, operations)

    def end_worker(self, operation: Operation, worker: str) -> list[str]:
        """End the attempts of a worker that is known to be dead; return their keys."""
        return sorted(self._ledger.end_worker(operation, worker))

    def states(
        self, keys: Collection[str], operations: Collection[str] | None = None
    ) -> list[OperationState]:
        """Return where operations stand: one read for many; those never claimed are left out."""
        return self._ledger.states(keys, operations)

    def open_states(self, operation: Operation, prefix: str = "") -> list[OperationState]:
        """Return the operations of a name that are not completed, by the beginning of their key."""
        return self._ledger.open_states(operation.name, prefix)

    def trail(self, key: str) -> list[OperationTrail]:
        """Return everything known about a key: all operations, all attempts."""
        attempts = self._ledger.attempts(key)
        states = self._ledger.states([key])
        return [OperationTrail(s, tuple(attempts.get(s.operation, ()))) for s in states]

    def late_attempts(self, operations: Collection[str], prefix: str = "") -> list[LateAttempt]:
        """Return attempts that came back late and changed nothing, oldest first."""
        return self._ledger.late(operations, prefix)

    def prune(self, before: datetime) -> int:
        """Forget operations that ended before an instant; return how many.

        Keep them longer than anything late can be: with its row goes the fence.
        """
        return self._ledger.prune(before)
