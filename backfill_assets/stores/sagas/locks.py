"""Short locks on named resources: all or none, in sorted order, and never for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from backfill_assets.core.errors import TryAgainError
from backfill_assets.stores.sql import load_statements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_STATEMENTS = load_statements("backfill_assets.stores.sagas", "locks.sql")


@dataclass(frozen=True, slots=True)
class Lock:
    """A resource that a saga holds until an instant."""

    resource: str
    saga_id: str
    acquired_at: datetime
    expires_at: datetime


def take_locks(
    connection: psycopg.Connection,
    saga_id: str,
    resources: Sequence[str],
    now: datetime,
    expires_at: datetime,
) -> bool:
    """Take all of these resources, or hold them longer; return False, holding no more, if not.

    A concurrent caller that wants one of them waits for this transaction only, never in a circle:
    all statements go through the resources in one order.
    """
    values = {
        "saga_id": saga_id,
        "resources": list(resources),
        "now": now,
        "expires_at": expires_at,
    }
    is_complete = False
    with connection.transaction() as whole:
        taken = connection.execute(_STATEMENTS["lock_all"], values).fetchall()
        is_complete = len(taken) == len(set(resources))
        if not is_complete:
            raise psycopg.Rollback(whole)
    return is_complete


def keep_until_commit(
    connection: psycopg.Connection, saga_id: str, resources: Sequence[str], now: datetime
) -> None:
    """Let nobody take these over before this transaction ends.

    Raises:
        TryAgainError: the saga does not hold all of them any more.
    """
    values = {"saga_id": saga_id, "resources": list(resources), "now": now}
    held = {row[0] for row in connection.execute(_STATEMENTS["keep_until_commit"], values)}
    if lost := sorted(set(resources) - held):
        message = f"{saga_id} does not hold {', '.join(lost)} any more; it takes them again"
        raise TryAgainError(message)


def release_locks(connection: psycopg.Connection, saga_id: str) -> None:
    """Let go of all that a saga holds."""
    connection.execute(_STATEMENTS["release"], {"saga_id": saga_id})


def holders(
    connection: psycopg.Connection, saga_id: str, resources: Sequence[str], now: datetime
) -> list[Lock]:
    """Return who holds these resources now, and what else the saga holds."""
    values = {"saga_id": saga_id, "resources": list(resources), "now": now}
    return [Lock(*row) for row in connection.execute(_STATEMENTS["holders"], values)]
