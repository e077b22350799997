"""Alerts for people: written in the transaction of what they are about, delivered later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg

    from backfill_assets.core.operations import Json

_STATEMENTS = load_statements("backfill_assets.stores.log", "alerts.sql")


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a person should look at.

    Attributes:
        dedup_key: The same however often the alert is raised or delivered.
    """

    dedup_key: str
    subject: str
    body: Json
    raised_at: datetime


def write_alert(
    connection: psycopg.Connection, dedup_key: str, subject: str, body: Json, now: datetime
) -> None:
    """Raise an alert in the caller's transaction; once for a deduplication key."""
    values = {"dedup_key": dedup_key, "subject": subject, "body": Jsonb(body), "now": now}
    connection.execute(_STATEMENTS["write"], values)


def read_alerts(connection: psycopg.Connection, prefix: str = "") -> list[Alert]:
    """Return alerts whose deduplication key begins so, oldest first."""
    return [Alert(*row) for row in connection.execute(_STATEMENTS["read"], {"prefix": prefix})]
