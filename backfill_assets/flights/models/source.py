"""Where the figures of the catalogue ``flight_models`` come from: the pipeline, run as it is read.

Rows are saved before a file is published. A crash in between leaves a partition missing, and the
next run gets every step's stored result: the file follows, and no row is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from backfill_assets.core.errors import (
    BusyError,
    ModelError,
    NotAppliedError,
    RemoteUnreachableError,
    SourceError,
    SourceNotReadyError,
)
from backfill_assets.flights.models.catalogue import FLIGHT_MODELS
from backfill_assets.flights.models.scores import DIGITS
from backfill_assets.flights.models.steps import Subject

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from backfill_assets.flights.models.saving import Scores
    from backfill_assets.flights.models.scores import ModelCard
    from backfill_assets.flights.models.scoring import Scoring
    from backfill_assets.flights.models.steps import Progress

CARRIER_CHARACTERS = 2  # at the beginning of a flight's name
NOT_TRAINED = "no models are trained yet; materialize flight_models/trained_models"


@dataclass(frozen=True, slots=True)
class ScoredFlights:
    """Flights with their scores."""

    scoring: Scoring

    def read(
        self, category: str, value_types: Sequence[str], days: Sequence[date], units: Sequence[str]
    ) -> pa.Table:
        """Return the scores of all the days and units, after each was saved.

        Raises:
            UnknownPartitionError: the catalogue has no such category or value type.
            SourceNotReadyError: no models are trained, their server does not run, or another
                attempt is at work on a day or backs off.
            SourceError: a day cannot be scored or saved, or the flights cannot be read.
        """
        for value_type in value_types:
            FLIGHT_MODELS.query(f"{category}/{value_type}")
        card = self._current()
        if card is None:
            raise SourceNotReadyError(NOT_TRAINED)
        subjects = [Subject.of_day(day, unit, card.version) for day in days for unit in units]
        try:
            with self.scoring.pipeline() as pipeline:
                progress = pipeline.run(subjects, card)
        except RemoteUnreachableError as error:
            raise SourceNotReadyError(str(error)) from error
        _check(progress)
        wide = pa.concat_tables(
            [
                _SCHEMA.empty_table(),
                *(_table(subject, progress.scores(subject.key)) for subject in subjects),
            ]
        )
        whole = wide if category == "flight" else _by_carrier(wide)
        return whole.select(["date", "unit", category, *value_types])

    def why_not_ready(self) -> str | None:
        """Return why nothing can be scored now, or None."""
        if self._current() is None:
            return NOT_TRAINED
        if not self.scoring.server_is_up():
            return (
                "the model server does not answer; `backfill-assets up` starts it, and so does "
                "`backfill-assets serve-models`"
            )
        return None

    def fingerprints(self, days: Sequence[date]) -> dict[date, str]:
        """Return the version of the current models for each day: others make other scores."""
        card = self._current()
        return {} if card is None else dict.fromkeys(days, f"models {card.version}")

    def _current(self) -> ModelCard | None:
        try:
            return self.scoring.folder.current()
        except ModelError as error:
            raise SourceError(str(error)) from error


_SCHEMA = pa.schema(
    [
        ("date", pa.date32()),
        ("unit", pa.string()),
        ("flight", pa.string()),
        ("risk", pa.float64()),
        ("anomaly", pa.float64()),
    ]
)


def _table(subject: Subject, scores: Scores) -> pa.Table:
    count = len(scores.flights)
    columns = [
        [subject.day] * count,
        [subject.unit] * count,
        list(scores.flights),
        list(scores.risks),
        list(scores.anomalies),
    ]
    return pa.table(columns, schema=_SCHEMA)


def _by_carrier(flights: pa.Table) -> pa.Table:
    carriers = pa.array([name[:CARRIER_CHARACTERS] for name in flights["flight"].to_pylist()])
    groups = flights.append_column("carrier", carriers.cast(pa.string()))
    # One thread: the order in which floating-point numbers are added changes their sum.
    means = groups.group_by(["date", "unit", "carrier"], use_threads=False).aggregate(
        [("risk", "mean"), ("anomaly", "mean")]
    )
    columns = {name: means[name] for name in ("date", "unit", "carrier")}
    for name in ("risk", "anomaly"):
        rounded = [round(value, DIGITS) for value in means[f"{name}_mean"].to_pylist()]
        columns[name] = pa.array(rounded, pa.float64())
    return pa.table(columns)


def _check(progress: Progress) -> None:
    """Fail where some subjects did not pass all steps, in the words of the first."""
    problems = list(progress.problems.values())
    if not problems:
        return
    serious = [error for error in problems if not isinstance(error, BusyError)]
    if not serious:
        raise SourceNotReadyError(str(problems[0]))
    first = serious[0]
    kind = "were refused" if isinstance(first.__cause__, NotAppliedError) else "did not pass"
    message = f"{len(problems)} days and airports {kind}; the first: {first}"
    raise SourceError(message) from first
