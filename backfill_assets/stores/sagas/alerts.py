"""Delivering alerts from the outbox: at least once, and in order for each target.

An alert is written in the transaction of what it is about. Here it is sent, outside of every
transaction, and marked afterwards: a crash in between sends it again, under the same key.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets.stores.log.alerts import Alert
from backfill_assets.stores.sagas.store import SagaStore
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from backfill_assets.stores.sagas.targets import AlertTarget

_STATEMENTS = load_statements("backfill_assets.stores.sagas", "deliveries.sql")

LEASE = timedelta(minutes=1)  # longer than a target may take for one alert
FIRST_WAIT = timedelta(seconds=10)
LONGEST_WAIT = timedelta(minutes=10)  # a target that comes back is noticed so soon
BATCH = 20  # alerts of one call and target; the next call goes on


@dataclass(frozen=True, slots=True)
class Delivered:
    """An alert that reached a target."""

    target: str
    dedup_key: str


class AlertDelivery:
    """The outbox of the log's database, and where it is emptied to.

    Args:
        url: Gives the address of the log's database; asked whenever a connection is opened.
        worker: Who we are; unique to this process.
        clock: Gives the present instant, aware.
    """

    def __init__(
        self,
        url: Callable[[], str],
        targets: Sequence[AlertTarget],
        *,
        worker: str,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = SagaStore(url, sleep)
        self._targets = targets
        self._worker = worker
        self._clock = clock

    def deliver(self) -> list[Delivered]:
        """Send what has not arrived yet, and return what did now.

        A target that refuses is left alone for a while, and misses nothing; the others go on. Of
        two callers at a time one serves a target.
        """
        return [one for target in self._targets for one in self._serve(target)]

    def pending(self, target: str, limit: int = BATCH) -> list[Alert]:
        """Return alerts that have not reached a target, in order."""
        rows = self._rows("pending", target=target, limit=limit)
        return [Alert(*row) for row in rows]

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        self._store.close()

    def _serve(self, target: AlertTarget) -> list[Delivered]:
        now = self._clock()
        self._write("begin", target=target.name)
        claimed = self._rows("claim", target=target.name, lease_until=now + LEASE, now=now)
        if not claimed:
            return []
        ((failures,),) = claimed
        arrived: list[Delivered] = []
        try:
            self._send(target, arrived)
        except Exception as error:  # noqa: BLE001 - it is kept with the target; the others go on
            wait = min(FIRST_WAIT * 2 ** min(failures, 20), LONGEST_WAIT)
            text = f"{type(error).__name__}: {error}"
            self._write("finish", target=target.name, error=text, retry_at=self._clock() + wait)
        else:
            self._write("finish", target=target.name, error=None, retry_at=None)
        return arrived

    def _send(self, target: AlertTarget, arrived: list[Delivered]) -> None:
        """Send in order; the first that does not arrive ends it, and nothing overtakes it."""
        for alert in self.pending(target.name):
            if not self._rows("renew", target=target.name, lease_until=self._clock() + LEASE):
                return  # taken for dead: somebody else sends
            target.deliver(alert)
            self._write("mark", target=target.name, dedup_key=alert.dedup_key, now=self._clock())
            arrived.append(Delivered(target.name, alert.dedup_key))

    def _rows(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        values |= {"owner": self._worker}
        return self._store.execute(lambda c: c.execute(_STATEMENTS[name], values).fetchall())

    def _write(self, name: str, **values: Any) -> None:
        values |= {"owner": self._worker}
        self._store.execute(lambda c: c.execute(_STATEMENTS[name], values))
