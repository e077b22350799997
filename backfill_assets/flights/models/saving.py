"""Rows of scores: the scores of a day and airport once, and of each request once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.core.errors import DuplicateEffectError
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    import psycopg

_STATEMENTS = load_statements("backfill_assets.flights.models", "saving.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What the models say about the flights of one day at one airport.

    Attributes:
        flights: By carrier and number, sorted.
        risks: The probability that each arrives late.
        anomalies: How unusual each is.
    """

    model: str
    flights: Sequence[str]
    risks: Sequence[float]
    anomalies: Sequence[float]

    @property
    def digest(self) -> str:
        """The SHA-256 of flights and scores."""
        text = json.dumps([list(self.flights), list(self.risks), list(self.anomalies)])
        return hashlib.sha256(text.encode()).hexdigest()


def make_tables(connection: psycopg.Connection) -> None:
    """Make the tables where they are not there yet; one process at a time."""
    with connection.transaction():
        connection.execute(_STATEMENTS["lock"])
        connection.execute(_STATEMENTS["create"])


def save_scores(
    connection: psycopg.Connection, day: date, unit: str, scores: Scores, saved_by: str
) -> None:
    """Write the row of a day and airport, in the caller's transaction.

    The same scores that stand there already are adopted: a log that was lost does not make a row
    that was kept wrong.

    Args:
        saved_by: The operation and attempt, for people.

    Raises:
        DuplicateEffectError: other scores of the same models stand there; names who saved them.
    """
    row = {"date": day, "unit": unit, "model": scores.model}
    values = {
        "flights": list(scores.flights),
        "risks": list(scores.risks),
        "anomalies": list(scores.anomalies),
        "digest": scores.digest,
        "saved_by": saved_by,
    }
    if connection.execute(_STATEMENTS["save"], row | values).fetchone() is not None:
        return
    found = connection.execute(_STATEMENTS["saved"], row).fetchone()
    if found is None or found[0] != scores.digest:
        digest, owner = found or ("", "somebody whose row is gone by now")
        message = (
            f"{saved_by}: delay_scores_once holds other scores of {day}, {unit}, model "
            f"{scores.model}: {digest[:12]}… by {owner}, and not {scores.digest[:12]}…; see both "
            "trails, and remove the row that is wrong"
        )
        raise DuplicateEffectError(message)


def save_requested(
    connection: psycopg.Connection, request: str, day: date, unit: str, scores: Scores, by: str
) -> None:
    """Write the row of a request for one flight, in the caller's transaction.

    Raises:
        psycopg.errors.UniqueViolation: the request has a row; the log makes a typed error of it.
    """
    values = {
        "request": request,
        "date": day,
        "unit": unit,
        "flight": scores.flights[0],
        "model": scores.model,
        "risk": scores.risks[0],
        "anomaly": scores.anomalies[0],
        "saved_by": by,
    }
    connection.execute(_STATEMENTS["save_requested"], values)


def saved_items(connection: psycopg.Connection, model: str) -> set[tuple[date, str]]:
    """Return the days and airports of which scores of a model stand saved."""
    return set(connection.execute(_STATEMENTS["saved_items"], {"model": model}).fetchall())
