"""Everything that scoring needs, put together: databases, trained models, server and log."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import ModelError, RemoteUnreachableError
from backfill_assets.flights.models.address import read_address
from backfill_assets.flights.models.features import known_facts
from backfill_assets.flights.models.pipeline import ScoringPipeline
from backfill_assets.flights.models.saving import make_tables, saved_items
from backfill_assets.flights.models.steps import (
    KEY_PREFIX,
    OPERATIONS,
    REQUEST_PREFIX,
    Subject,
)
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.postgres.connections import Target, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import date, datetime
    from pathlib import Path

    import psycopg

    from backfill_assets.flights.models.artifacts import ModelFolder
    from backfill_assets.flights.models.saving import Scores
    from backfill_assets.stores.log.ledger import LateAttempt

ANSWER_SECONDS = 30.0  # for a day of an airport, which takes a fiftieth of a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How flights are scored in this project. Nothing is opened before it is used.

    Attributes:
        source_url: Gives the address of the database with the flights.
        log_url: Gives the address of the database with the log and the saved scores.
        folder: The trained models.
        address: Gives the file that says where the model server listens.
        worker: Names this process in the log, for people.
        clock: Gives the real instant.
    """

    source_url: Callable[[], str]
    log_url: Callable[[], str]
    folder: ModelFolder
    address: Callable[[], Path]
    worker: Callable[[], str]
    clock: Callable[[], datetime]

    @contextmanager
    def pipeline(self) -> Iterator[ScoringPipeline]:
        """Open the pipeline, and close its connections afterwards.

        Raises:
            PostgresError: the log database is not reached.
        """
        from backfill_assets.stores.http_calls import Caller  # noqa: PLC0415 - see server_is_up

        with self._connected() as connection:
            make_tables(connection)
        with (
            Caller("the model server", self._server_url, answer_seconds=ANSWER_SECONDS) as server,
            closing(self.log()) as log,
        ):
            yield ScoringPipeline(
                log, lambda days, units: known_facts(self.source_url(), days, units), server
            )

    def server_is_up(self) -> bool:
        """Return whether the model server answers."""
        # Not at the top: every run of Dagster imports this, and few call the server.
        from backfill_assets.stores.http_calls import is_answering  # noqa: PLC0415

        try:
            return is_answering(f"{read_address(self.address())}/health")
        except ModelError:
            return False

    def score_flight(self, request: str, day: date, unit: str, flight: str) -> Scores:
        """Return the scores of one flight, the same whenever the request comes again.

        Args:
            request: The client's own name for the request, such as a UUID.

        Raises:
            KeyReusedError: the request came before, for another flight.
            OperationError: it was not scored; the message says whether it may have been saved.
            SourceError: no models are trained, or the flights cannot be read.
        """
        subject = Subject.of_request(request, day, unit, flight)
        with self.pipeline() as pipeline:
            progress = pipeline.run([subject], self.folder.current())
        for problem in progress.problems.values():
            raise problem
        return progress.scores(subject.key)

    def late_attempts(self) -> list[LateAttempt]:
        """Return attempts of the pipeline that came back late and changed nothing."""
        names = [operation.name for operation in OPERATIONS]
        with closing(self.log()) as log:
            return [
                late
                for prefix in (KEY_PREFIX, REQUEST_PREFIX)
                for late in log.late_attempts(names, prefix)
            ]

    def saved(self, model: str) -> set[tuple[date, str]]:
        """Return the days and airports of which scores of a version stand saved."""
        with self._connected() as connection:
            make_tables(connection)
            return saved_items(connection, model)

    def unfinished(self) -> list[dict[str, Any]]:
        """Return the steps that are tried again or wait for a person, with their reasons."""
        with closing(self.log()) as log:
            states = [
                state
                for operation in OPERATIONS
                for state in log.open_states(operation, KEY_PREFIX)
            ]
        return [
            {
                "key": state.key,
                "operation": state.operation,
                "attempts": state.spent,
                "outcome": state.outcome,
                "error": state.error.error_message if state.error else None,
                "retry_at": state.retry_at.isoformat() if state.retry_at else None,
            }
            for state in states
        ]

    def log(self) -> IdempotencyLog:
        """Return the log; the caller closes it."""
        return IdempotencyLog(self.log_url, worker=self.worker(), clock=self.clock)

    def _connected(self) -> psycopg.Connection:
        return connect(
            Target(
                url=self.log_url(),
                name="the log database",
                password=None,
                remedy="Correct BACKFILL_DATABASE_URL, or allow the login",
            )
        )

    def _server_url(self) -> str:
        try:
            return read_address(self.address())
        except ModelError as error:
            raise RemoteUnreachableError(str(error)) from error
