"""A small project whose days are released: a store, a real PostgreSQL, and a subscriber over HTTP.

What a process would have is opened anew for each worker, so that a child that is killed leaves
behind what a killed process does, and nothing else. Faults are put in at named points, before or
after what a step does.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import psycopg

from backfill_assets.core.releases import RELEASE_DAY, ReleaseKey, partitions_of_day
from backfill_assets.resources.releases import Releasing
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.releases.actions import ReleaseActions
from backfill_assets.stores.releases.published import PublishedRows
from backfill_assets.stores.sagas.actions import SagaRegistry
from backfill_assets.stores.sagas.sagas import Sagas
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    SHOPS,
    Shops,
    a_project,
    fill,
)
from backfill_assets_tests.stores.children import child
from backfill_assets_tests.stores.sagas.trip import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date
    from pathlib import Path

    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.core.plan import Plan
    from backfill_assets.resources.project import Project
    from backfill_assets.stores.sagas.rows import Saga

START = datetime(2024, 3, 6, 12, tzinfo=UTC)
KEY = ReleaseKey("shops", DAY_1)  # two shops, two value types: four partitions of two rows


class Subscriber:
    """An HTTP server that remembers what it was told, and can refuse, or be slow to answer."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.refusing = 0  # so many calls are heard and answered with an error
        subscriber = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                subscriber.heard.append((self.headers["Idempotency-Key"], json.loads(body)))
                is_refused = subscriber.refusing > 0
                subscriber.refusing -= is_refused
                self.send_response(503 if is_refused else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/days"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def told(self) -> list[tuple[str, str]]:
        """Return what was heard, once for each idempotency key: the event and the day."""
        by_key = {key: (body["event"], body["day"]) for key, body in self.heard}
        return list(by_key.values())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class World:
    """The project, and what a process has of it.

    Attributes:
        hooks: What happens at a point such as ``load_rows.before``, one for each time.
    """

    url: str
    root: Path
    clock: Clock = field(default_factory=lambda: Clock(START))
    subscribers: Sequence[str] = ()
    hooks: dict[str, list[Callable[[], object]]] = field(default_factory=lambda: defaultdict(list))
    opened: list[Releasing] = field(default_factory=list)
    source: Shops = field(default_factory=Shops)

    def __post_init__(self) -> None:
        self.project: Project = a_project(self.root, source=self.source)

    def releasing(self, worker: str = "one") -> Releasing:
        """Return what a process would have."""
        log = IdempotencyLog(
            lambda: self.url, worker=worker, clock=self.clock, sleep=self.clock.sleep
        )
        rows = PublishedRows(lambda: self.url, self.clock.sleep)
        actions = ReleaseActions(self.project.store, [SHOPS], rows, self.clock)
        do = {name: self._at(name, act) for name, act in actions.do.items()}
        undo = {name: self._at(name, act) for name, act in actions.undo.items()}
        sagas = Sagas(
            lambda: self.url,
            log,
            SagaRegistry([RELEASE_DAY], do, undo),
            worker=worker,
            clock=self.clock,
            sleep=self.clock.sleep,
            chance=lambda: 0.0,
        )
        made = Releasing(
            project=self.project,
            sagas=sagas,
            log=log,
            actions=actions,
            clock=self.clock,
            subscribers=self.subscribers,
        )
        self.opened.append(made)
        return made

    def _at(self, name: str, act: Callable[[Any], Any]) -> Callable[[Any], Any]:
        step = name.removeprefix("release_day.")

        def acting(call: Any) -> Any:
            self._reach(f"{step}.before")
            result = act(call)
            self._reach(f"{step}.after")
            return result

        return acting

    def _reach(self, point: str) -> None:
        if self.hooks[point]:
            self.hooks[point].pop(0)()

    def dies_at(self, point: str, act: Callable[[Releasing], object]) -> None:
        """Do something in a process that is killed when it reaches a point."""

        def doomed() -> None:
            self.hooks[point] = [lambda: os.kill(os.getpid(), signal.SIGKILL)]
            act(self.releasing("doomed"))

        with child(doomed) as running:
            assert running.exit_code() == -signal.SIGKILL, f"it never reached {point}"

    def recover(self, worker: str = "other") -> list[Saga]:
        """Do what the supervisor does, some minutes later."""
        self.clock.pass_by(minutes=5)
        return self.releasing(worker).sagas.recover(patience=timedelta(minutes=10))

    def plan(self) -> Plan:
        return self.project.plan(SHOPS)

    def fill(self, *days: date) -> None:
        fill(self.project, days=days or None)

    def make_again(self, day: date, factor: int) -> None:
        """Restate a day, with other values."""
        with self.project.store.attempt("again") as attempt:
            for partition in partitions_of_day(SHOPS, day):
                category, value_type = partition.query.category, partition.query.value_type
                table = Shops(factor=factor).read(category, [value_type], [day], [partition.unit])
                rows = table.select([category, value_type]).rename_columns([category, "value"])
                attempt.stage(partition, rows)
            attempt.publish(replace=True)

    def execute(self, statement: str, *values: object) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def rows(self, day: date = DAY_1) -> list[Any]:
        """Return what readers see of a day."""
        return self.execute(
            "SELECT category, value_type, unit, group_value, value FROM published_values"
            " WHERE day = %s ORDER BY category, value_type, unit, position",
            day,
        )

    def manifest(self, key: ReleaseKey = KEY) -> Any:
        return ReleaseActions(
            self.project.store, [SHOPS], PublishedRows(lambda: self.url), self.clock
        ).manifests.read(key)

    def held(self, day: date = DAY_1) -> int:
        wanted = partitions_of_day(SHOPS, day)
        return len(self.project.store.scan(SHOPS, within=wanted).held)

    def committed(self, day: date = DAY_1) -> PartitionSet:
        wanted = partitions_of_day(SHOPS, day)
        found = self.project.store.scan(SHOPS, within=wanted)
        return found.committed - found.held

    def close(self) -> None:
        for releasing in self.opened:
            releasing.close()
