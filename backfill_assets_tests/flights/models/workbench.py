"""The pipeline as tests run it: small models, a real server, a clock that a test moves."""

from __future__ import annotations

import os
import signal
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg

from backfill_assets.core.operations import Attempt, Claimed
from backfill_assets.flights.models.features import known_facts
from backfill_assets.flights.models.pipeline import ScoringPipeline
from backfill_assets.flights.models.saving import make_tables
from backfill_assets.flights.models.scoring import Scoring
from backfill_assets.flights.models.server import SERVICE, make_app
from backfill_assets.flights.models.steps import Subject
from backfill_assets.flights.models.training import Recipe
from backfill_assets.stores.http_calls import Caller
from backfill_assets.stores.http_replies import StoredReplies
from backfill_assets.stores.http_serving import write_address
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets_tests.stores.serving import served

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from backfill_assets.core.operations import Claim, Json, Operation
    from backfill_assets.flights.models.artifacts import ModelFolder
    from backfill_assets.flights.models.pipeline import ModelServer
    from backfill_assets.flights.models.scores import ModelCard
    from backfill_assets.flights.models.steps import Progress
    from backfill_assets.stores.log.transactions import Transaction

JANUARY = Recipe(last_day=date(2013, 1, 31), trees=5, isolation_trees=5)  # made in a second
DAY = date(2013, 7, 4)
START = datetime(2026, 1, 1, tzinfo=UTC)
AFTER_THE_LEASE = timedelta(minutes=2)
AFTER_ANY_WAIT = timedelta(hours=2)
ANSWER_SECONDS = 20.0


@dataclass
class Clock:
    """Stands where a test has put it."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, time: timedelta) -> None:
        self.now += time


class Unlogged(IdempotencyLog):
    """The log switched off: every operation is always one's own, and everything is done."""

    def claim_many(
        self,
        operation: Operation,
        payloads: Mapping[str, Json],
        *,
        disproved: Mapping[str, int] | None = None,  # noqa: ARG002 - as in the log
    ) -> dict[str, Claim]:
        until = self._clock() + AFTER_THE_LEASE
        return {
            key: Claimed(Attempt(operation, key, 1, 1, 1, in_doubt=False, lease_until=until))
            for key in payloads
        }

    def complete_many(
        self,
        results: Mapping[Attempt, Json],  # noqa: ARG002 - as in the log
        *,
        connection: psycopg.Connection | None = None,  # noqa: ARG002 - as in the log
    ) -> list[Attempt]:
        return []

    def fail_many(  # type: ignore[override]
        self,
        attempts: Sequence[Attempt],
        error: BaseException,  # noqa: ARG002 - as in the log
        **_: object,
    ) -> dict[Attempt, datetime | None]:
        return dict.fromkeys(attempts)


@dataclass
class Workbench:
    """One log database, and pipelines over it.

    Attributes:
        url: Of the database with the log, the saved rows and the server's replies.
        flights_url: Of the database with the flights.
    """

    url: str
    flights_url: str
    folder: ModelFolder
    home: Path
    clock: Clock = field(default_factory=Clock)

    @property
    def card(self) -> ModelCard:
        card = self.folder.current()
        assert card is not None
        return card

    @property
    def scoring(self) -> Scoring:
        return Scoring(
            source_url=lambda: self.flights_url,
            log_url=lambda: self.url,
            folder=self.folder,
            address=lambda: self.home / "address.json",
            worker=lambda: "test",
            clock=self.clock,
        )

    def subject(self, unit: str = "JFK", day: date = DAY) -> Subject:
        return Subject.of_day(day, unit, self.card.version)

    def log(self, worker: str) -> IdempotencyLog:
        return IdempotencyLog(lambda: self.url, worker=worker, clock=self.clock)

    def prepare(self, *, constrained: bool = True) -> None:
        """Make the tables; without constraints nothing but the log keeps rows from doubling."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            make_tables(connection)
            if not constrained:
                connection.execute("ALTER TABLE delay_scores DROP CONSTRAINT delay_scores_once")

    def pipeline(self, log: IdempotencyLog, server: ModelServer) -> ScoringPipeline:
        return ScoringPipeline(
            log, lambda days, units: known_facts(self.flights_url, days, units), server
        )

    def run(self, url: str, *subjects: Subject, log: IdempotencyLog) -> Progress:
        """Run the pipeline once, against the server at an address."""
        with Caller("the model server", lambda: url, answer_seconds=ANSWER_SECONDS) as server:
            try:
                return self.pipeline(log, server).run(subjects, self.card)
            finally:
                log.close()

    def rows(self) -> list[tuple[str, str]]:
        """Return the saved rows: airport and digest."""
        return self.ask("SELECT unit, digest FROM delay_scores ORDER BY unit, saved_at")

    def ask(self, query: str) -> list[tuple[str, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()  # type: ignore[arg-type]

    def outcomes(self, subject: Subject) -> dict[str, list[str]]:
        """Return how the attempts at each step ended, oldest first."""
        log = self.log("test")
        try:
            return {
                one.state.operation: [str(attempt.outcome) for attempt in one.attempts]
                for one in log.trail(subject.key)
            }
        finally:
            log.close()

    @contextmanager
    def server(self) -> Iterator[tuple[str, int]]:
        """Serve in a thread of this process; the address is written where clients look."""
        replies = StoredReplies(lambda: self.url, SERVICE)
        app = make_app(replies, self.folder)
        with closing(replies), served(app) as (host, port):
            write_address(self.home / "address.json", f"http://{host}:{port}")
            yield host, port


class HeldLog(IdempotencyLog):
    """A log whose saving waits at one place until it is let go on."""

    def hold(self, arrived: threading.Event, released: threading.Event, *, after: bool) -> None:
        """Wait before the row is written, or after it and before the fence."""
        self._held = (arrived, released, after)

    @contextmanager
    def writing(self, attempt: Attempt) -> Iterator[Transaction]:
        arrived, released, after = self._held
        if not after:
            arrived.set()
            assert released.wait(ANSWER_SECONDS)
        with super().writing(attempt) as work:
            yield work
            if after:
                arrived.set()
                assert released.wait(ANSWER_SECONDS)


def stopping(server: ModelServer, at: Callable[[str], bool]) -> ModelServer:
    """Return a server whose caller stops itself, as SIGSTOP does, when an answer has come."""

    class Stopping:
        def post(self, path: str, key: str, body: Json) -> Json:
            answer = server.post(path, key, body)
            if at(path):
                os.kill(os.getpid(), signal.SIGSTOP)
            return answer

    return Stopping()
