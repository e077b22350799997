"""The sagas and alerts of a process, as sensors, jobs and the command line deal with them."""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from backfill_assets.core.errors import SagaArgumentsError
from backfill_assets.core.sagas import SagaStatus
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.sagas.alerts import AlertDelivery
from backfill_assets.stores.sagas.sagas import Sagas
from backfill_assets.stores.sagas.targets import AlertTarget, LoggingTarget, WebhookTarget

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from backfill_assets.core.operations import Json
    from backfill_assets.core.sagas import Choice
    from backfill_assets.stores.sagas.actions import SagaRegistry
    from backfill_assets.stores.sagas.rows import Saga

# The first retries of a step are waited for in the run that is there: another one costs seconds.
PATIENCE = timedelta(minutes=1)
OVERDUE = timedelta(minutes=10)  # what nobody took up for so long is stuck, whatever the reason
OPEN = tuple(s for s in SagaStatus if s not in (SagaStatus.COMPLETED, SagaStatus.COMPENSATED))


@dataclass(frozen=True, slots=True)
class SagaDesk:
    """Where sagas are driven, looked at and decided about."""

    sagas: Sagas
    delivery: AlertDelivery
    clock: Callable[[], datetime]

    def drive(self, saga_id: str) -> Saga:
        """Drive a saga as far as it goes, waiting for its first retries."""
        return self.sagas.run(saga_id, patience=PATIENCE)

    def decide(
        self,
        saga_id: str,
        version: int,
        choice: Choice,
        *,
        who: str,
        why: str,
        step: str | None = None,
        arguments: str | None = None,
        receipt: str | None = None,
    ) -> Saga:
        """Decide about a saga that waits; drive it afterwards.

        Args:
            arguments, receipt: JSON, as typed by a person.

        Raises:
            SagaArgumentsError: a text is no JSON, or nobody says who decides or why.
            SagaError: as ``Sagas.decide`` does.
        """
        _require(who=who, why=why)
        return self.sagas.decide(
            saga_id,
            version,
            choice,
            who=who,
            why=why,
            step=step or None,
            arguments=_json("arguments", arguments),
            receipt=_json("receipt", receipt),
        )

    def cancel(self, saga_id: str, *, who: str, why: str) -> Saga:
        """Have all that a saga did undone; drive it afterwards.

        Raises:
            SagaArgumentsError: nobody says who cancels or why.
            SagaError: as ``Sagas.cancel`` does.
        """
        _require(who=who, why=why)
        return self.sagas.cancel(saga_id, who=who, why=why)

    def close(self) -> None:
        """Close this thread's connections: a server with many threads would keep one for each."""
        self.sagas.close()
        self.delivery.close()

    def open_sagas(self) -> list[Saga]:
        """Return the sagas that are not at their end, the newest first."""
        return self.sagas.find(statuses=OPEN)

    def stuck_sagas(self) -> dict[str, list[str]]:
        """Return the sagas that somebody should look at, by what is the matter with them."""
        now = self.clock()
        open_sagas = self.open_sagas()
        return {
            "waiting for a decision": [
                f"{saga.saga_id}: {saga.question.reason}" for saga in open_sagas if saga.question
            ],
            "breaking off": [f"{saga.saga_id}: {saga.fault}" for saga in open_sagas if saga.fault],
            "not taken up": [
                f"{saga.saga_id}: due since {saga.due_at}"
                for saga in open_sagas
                if saga.due_at is not None and saga.due_at < now - OVERDUE
            ],
        }


def open_saga_desk(
    url: Callable[[], str],
    registry: SagaRegistry,
    *,
    clock: Callable[[], datetime],
    webhook: str | None = None,
) -> SagaDesk:
    """Return the desk of this process; nothing is connected to yet.

    Args:
        url: Gives the address of the log's database.
        clock: Real time: leases and timers have nothing to do with the data's clock.
        webhook: Where alerts go besides the process's log.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    log = IdempotencyLog(url, worker=worker, clock=clock)
    targets: list[AlertTarget] = [LoggingTarget(logging.getLogger("backfill_assets.alerts"))]
    if webhook is not None:
        targets.append(WebhookTarget(webhook))
    return SagaDesk(
        sagas=Sagas(url, log, registry, worker=worker, clock=clock),
        delivery=AlertDelivery(url, targets, worker=worker, clock=clock),
        clock=clock,
    )


def _require(**texts: str) -> None:
    for name, text in texts.items():
        if not text.strip():
            raise SagaArgumentsError(f"say {name}: the journal of a saga has nothing else to go by")


def _json(name: str, text: str | None) -> Json:
    if not text:
        return None
    try:
        value: Json = json.loads(text)
    except ValueError as error:
        raise SagaArgumentsError(f"{name} {text!r} is no JSON: {error}") from None
    return value
