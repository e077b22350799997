"""The pipeline: facts → features → risk → anomaly → a saved row, each step under the log.

One key goes through all steps, made of coordinates and the models' version, or given by whoever
asks for one flight; the step is the operation's name. A pipeline that failed or died is simply run
again: steps that were done give what they gave then, and the first that was not goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from backfill_assets.core.errors import (
    BackfillAssetsError,
    NotAppliedError,
    OperationError,
    RemoteUnreachableError,
    SourceError,
    StaleAttemptError,
)
from backfill_assets.core.operations import Busy, Claimed, Done, Kind, Outcome
from backfill_assets.flights.models.features import features
from backfill_assets.flights.models.saving import save_requested, save_scores
from backfill_assets.flights.models.steps import (
    PREPROCESS,
    REQUEST_PREFIX,
    SAVE,
    SCORE_ANOMALY,
    SCORE_RISK,
    Progress,
)
from backfill_assets.stores.log.answers import busy_error
from backfill_assets.stores.log.results import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    import psycopg
    import pyarrow as pa

    from backfill_assets.core.operations import Attempt, Json, Operation
    from backfill_assets.flights.models.saving import Scores
    from backfill_assets.flights.models.scores import ModelCard
    from backfill_assets.flights.models.steps import Subject
    from backfill_assets.stores.log.log import IdempotencyLog

# Calls between two writes of what they gave: half a second of work that a crash has repeated.
CALLS_PER_BATCH = 30
PATHS = {SCORE_RISK.name: "/v1/risk", SCORE_ANOMALY.name: "/v1/anomaly"}


class ModelServer(Protocol):
    """What the pipeline calls; see ``stores.http_calls.Caller``."""

    def post(self, path: str, key: str, body: Json) -> Json:
        """Send a request under its key, and return the answer's body."""


class ScoringPipeline:
    """Scores flights, each step once.

    Args:
        facts: Gives the scheduled flights of days and airports, as ``known_facts`` does.
        server: Where the models are.
    """

    def __init__(
        self,
        log: IdempotencyLog,
        facts: Callable[[Sequence[date], Sequence[str]], pa.Table],
        server: ModelServer,
    ) -> None:
        self._log = log
        self._facts = facts
        self._server = server

    def run(self, subjects: Sequence[Subject], card: ModelCard | None) -> Progress:
        """Take subjects through all steps as far as they go; one that fails stops no other.

        Args:
            card: Of the models to score with; None serves subjects whose features stand already.

        Raises:
            RemoteUnreachableError: the model server does not run; what was done so far is kept.
            SourceError: the facts cannot be read; likewise.
        """
        progress = Progress()
        by_key = {subject.key: subject for subject in subjects}
        self._preprocess(progress, by_key, card)
        for operation in (SCORE_RISK, SCORE_ANOMALY):
            self._score(progress, operation)
        self._save(progress, by_key)
        return progress

    def _preprocess(
        self, progress: Progress, subjects: Mapping[str, Subject], card: ModelCard | None
    ) -> None:
        payloads: dict[str, Json] = {
            s.key: {"date": s.day.isoformat(), "unit": s.unit, "flight": s.flight}
            for s in subjects.values()
        }
        attempts = self._claim(progress, PREPROCESS, payloads)
        if not attempts:
            return
        try:
            made = self._features([subjects[attempt.key] for attempt in attempts], card)
        except BaseException as error:
            self._log.fail_many(attempts, error)
            raise
        results: dict[Attempt, Json] = {}
        for attempt in attempts:
            if (found := made.get(attempt.key)) is not None:
                results[attempt] = found
            else:
                self._fail(progress, attempt, _no_such_flight(subjects[attempt.key]))
        self._complete(progress, PREPROCESS, results)

    def _features(self, subjects: Sequence[Subject], card: ModelCard | None) -> dict[str, Json]:
        """Return the features of each subject by key; a request for no known flight has none."""
        if card is None:
            raise SourceError("no models are trained: materialize flight_models/trained_models")
        days, units = sorted({s.day for s in subjects}), sorted({s.unit for s in subjects})
        facts = self._facts(days, units)
        made = features(facts, card.vocabularies)
        places: dict[tuple[date, str], list[int]] = {}
        names = zip(facts.column("date").to_pylist(), facts.column("unit").to_pylist(), strict=True)
        for place, name in enumerate(names):
            places.setdefault(name, []).append(place)
        found: dict[str, Json] = {}
        for subject in subjects:
            chosen = [
                place
                for place in places.get((subject.day, subject.unit), [])
                if subject.flight in {None, made.flights[place]}
            ]
            if chosen or subject.flight is None:
                found[subject.key] = {
                    "model": card.version,
                    "flights": [made.flights[place] for place in chosen],
                    "rows": [list(made.rows[place]) for place in chosen],
                }
        return found

    def _score(self, progress: Progress, operation: Operation) -> None:
        ready = self._ready(progress)
        keys_in_order = list(ready)
        for first in range(0, len(ready), CALLS_PER_BATCH):
            keys = keys_in_order[first : first + CALLS_PER_BATCH]
            payloads: dict[str, Json] = {
                key: {"model": ready[key]["model"], "input": fingerprint(ready[key]["rows"])}
                for key in keys
            }
            attempts = self._claim(progress, operation, payloads)
            if attempts:
                with self._log.kept_alive(attempts):
                    self._call(progress, operation, attempts)

    def _call(self, progress: Progress, operation: Operation, attempts: Sequence[Attempt]) -> None:
        """Call the server for each attempt; what was given is stored whatever ends the calls."""
        left = list(attempts)
        results: dict[Attempt, Json] = {}
        try:
            while left:
                try:
                    results[left[0]] = self._ask(operation, left[0], progress)
                except RemoteUnreachableError:
                    raise
                except OperationError as error:  # kept with its attempt; the others go on
                    self._fail(progress, left[0], error)
                left.pop(0)
        except RemoteUnreachableError as error:
            self._log.fail_many(left, error, outcome=Outcome.FAILED, is_spent=False)
            raise
        except BaseException as error:  # the process is told to end, perhaps while it waits
            self._log.fail_many(left[:1], error, outcome=Outcome.UNKNOWN)
            self._log.fail_many(left[1:], error, outcome=Outcome.FAILED, is_spent=False)
            raise
        finally:
            self._complete(progress, operation, results)

    def _ask(self, operation: Operation, attempt: Attempt, progress: Progress) -> Json:
        given = progress.of(PREPROCESS)[attempt.key]
        body: Json = {"model": given["model"], "rows": given["rows"]}
        answer = self._server.post(PATHS[operation.name], attempt.remote_key, body)
        scores = answer.get("scores") if isinstance(answer, dict) else None
        if not isinstance(scores, list) or len(scores) != len(given["rows"]):
            message = f"{attempt}: the model server did not give a score for each flight"
            raise OperationError(message)
        return scores

    def _save(self, progress: Progress, subjects: Mapping[str, Subject]) -> None:
        ready = self._ready(progress)
        payloads: dict[str, Json] = {key: {"digest": progress.scores(key).digest} for key in ready}
        for attempt in self._claim(progress, SAVE, payloads):
            scores = progress.scores(attempt.key)
            try:
                with self._log.writing(attempt) as work:
                    _write(work.connection, subjects[attempt.key], scores, str(attempt))
                    work.result = {"digest": scores.digest}
            except StaleAttemptError as error:
                progress.problems[attempt.key] = error
            except BackfillAssetsError as error:
                self._fail(progress, attempt, error)
            except BaseException as error:
                self._log.fail_many([attempt], error)
                raise
            else:
                progress.of(SAVE)[attempt.key] = work.result

    def _ready(self, progress: Progress) -> dict[str, Any]:
        """Return the features of the subjects that every step so far has passed."""
        made = progress.of(PREPROCESS)
        return {key: made[key] for key in made if key not in progress.problems}

    def _claim(
        self, progress: Progress, operation: Operation, payloads: Mapping[str, Json]
    ) -> list[Attempt]:
        """Return the attempts that are ours; what is done already is in the progress."""
        attempts = []
        for key, claim in self._log.claim_many(operation, payloads).items():
            if isinstance(claim, Claimed):
                attempts.append(claim.attempt)
            elif isinstance(claim, Done):
                progress.of(operation)[key] = claim.result
            elif isinstance(claim, Busy):
                progress.problems[key] = busy_error(operation, key, claim)
            else:
                progress.problems[key] = claim.error
        return attempts

    def _complete(
        self, progress: Progress, operation: Operation, results: Mapping[Attempt, Json]
    ) -> None:
        """Store results; an attempt that was fenced gave nothing that counts."""
        fenced = set(self._log.complete_many(results))
        for attempt, result in results.items():
            if attempt in fenced:
                message = f"{attempt} came too late: another attempt came first"
                progress.problems[attempt.key] = StaleAttemptError(message)
            else:
                progress.of(operation)[attempt.key] = result

    def _fail(self, progress: Progress, attempt: Attempt, error: Exception) -> None:
        is_definite = attempt.operation.kind is Kind.TRANSACTIONAL
        is_definite = is_definite or isinstance(error, NotAppliedError)
        outcome = Outcome.FAILED if is_definite else Outcome.UNKNOWN
        self._log.fail_many([attempt], error, outcome=outcome)
        message = f"{attempt} is {outcome}: {error}"
        failed = OperationError(message)
        failed.__cause__ = error
        progress.problems[attempt.key] = failed


def _no_such_flight(subject: Subject) -> SourceError:
    return SourceError(
        f"flight {subject.flight} from {subject.unit} on {subject.day}: none was scheduled; give "
        "carrier and number, such as UA1545"
    )


def _write(connection: psycopg.Connection, subject: Subject, scores: Scores, by: str) -> None:
    if subject.flight is None:
        save_scores(connection, subject.day, subject.unit, scores, by)
    else:
        request = subject.key.removeprefix(REQUEST_PREFIX)
        save_requested(connection, request, subject.day, subject.unit, scores, by)
