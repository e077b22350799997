"""Effects that commit together with their record, in one transaction of the log's database."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors

from backfill_assets.core.errors import DuplicateEffectError, StaleAttemptError
from backfill_assets.core.operations import Outcome, Status
from backfill_assets.stores.log.claims import Claims, stale

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets.core.operations import Attempt, Json


@dataclass(slots=True)
class Transaction:
    """The transaction of one attempt; its last statement stores ``result``, if it may.

    Attributes:
        connection: Where the effect is written; never committed by hand.
        result: Set by whoever writes the effect.
    """

    attempt: Attempt
    connection: psycopg.Connection
    result: Json = None


class Transactions(Claims):
    """Attempts whose effect is rows of the log's own database."""

    @contextmanager
    def writing(self, attempt: Attempt) -> Iterator[Transaction]:
        """Open the transaction of an attempt; at its end the fence decides whether it commits.

        Raises:
            StaleAttemptError: another attempt, or a seal, came first; nothing is written.
            DuplicateEffectError: a constraint of the result's own table says that it is there.
        """
        work: Transaction | None = None
        is_written = False
        lease_seconds = attempt.operation.policy.lease.total_seconds()
        try:
            with self._sessions.transaction(lease_seconds) as connection:
                work = Transaction(attempt, connection)
                yield work
                is_written = True
                # Last, not first: a lock on the row would keep others from taking over, and what
                # is true at the start may not be true at the end.
                if self.complete_many({attempt: work.result}, connection=connection):
                    raise stale(attempt)
        except StaleAttemptError:
            if is_written and work is not None:
                self.note_late({attempt: work.result})
            raise
        except errors.UniqueViolation as error:
            raise self._duplicate(attempt, error) from error
        except psycopg.Error as error:
            if not is_written or work is None:
                raise
            # The answer to the commit was lost, or it never came there: the row knows.
            status = self._ledger.stand(attempt)
            if status is Status.COMPLETED:
                return
            if status is not Status.PROCESSING:
                self.note_late({attempt: work.result})
                raise stale(attempt) from error
            raise

    def _duplicate(self, attempt: Attempt, error: errors.UniqueViolation) -> DuplicateEffectError:
        detail = error.diag.message_detail or str(error)
        done = [
            f"; attempt {record.number} by {record.worker} completed at {record.ended_at}"
            for record in self._ledger.attempts(attempt.key).get(attempt.operation.name, ())
            if record.outcome is Outcome.SUCCEEDED
        ]
        owner = done[0] if done else "; no attempt of this operation wrote it"
        return DuplicateEffectError(
            f"{attempt}: {error.diag.table_name} refused it by {error.diag.constraint_name}: "
            f"{detail}{owner}"
        )
