"""Everything known about one item: its operations under the log, and every attempt at them."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.stores.publishing_log import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from backfill_assets.core.operations import OperationTrail
    from backfill_assets.resources.project import Project
    from backfill_assets.stores.log.log import IdempotencyLog

FORM = "an idempotency key, or a partition as catalogue/category/value_type/YYYY-MM-DD/unit"


def trail(project: Project, log: IdempotencyLog, text: str) -> list[OperationTrail]:
    """Return the operations of a key or a partition, in the order in which they began.

    Args:
        log: Closed when this returns.
        text: An idempotency key, or the name of a partition.
    """
    with closing(log):
        found = [one for key in (text, *_partition_keys(project, text)) for one in log.trail(key)]
    return sorted(found, key=lambda one: one.state.created_at)


def trail_facts(operations: Sequence[OperationTrail]) -> list[dict[str, Any]]:
    """Return a trail in values that JSON can carry."""
    return [
        {
            "key": one.state.key,
            "operation": one.state.operation,
            "status": one.state.status,
            "sealed": one.state.sealed_reason,
            "generation": one.state.generation,
            "result": one.state.result,
            "attempts": [
                {
                    "number": attempt.number,
                    "worker": attempt.worker,
                    "outcome": attempt.outcome,
                    "started_at": attempt.started_at.isoformat(),
                    "ended_at": attempt.ended_at.isoformat() if attempt.ended_at else None,
                    "error_type": attempt.error_type,
                    "error": attempt.error_message,
                    "result_digest": attempt.result_digest,
                    "note": attempt.note,
                }
                for attempt in one.attempts
            ],
        }
        for one in operations
    ]


def print_trail(out: Console, operations: Sequence[OperationTrail]) -> None:
    """Print a line for each operation, and one for each attempt under it."""
    for one in trail_facts(operations):
        sealed = f", sealed: {one['sealed']}" if one["sealed"] else ""
        out.print(
            f"{one['operation']} {one['key']}: {one['status']}{sealed}",
            soft_wrap=True,
            style="bold",
        )
        for attempt in one["attempts"]:
            out.print(f"  {_attempt_line(attempt)}", soft_wrap=True, highlight=False)


def _attempt_line(attempt: dict[str, Any]) -> str:
    parts = [
        f"{attempt['number']} {attempt['outcome']}",
        f"{attempt['started_at'][:19]} by {attempt['worker']}",
        f"{attempt['error_type']}: {attempt['error']}" if attempt["error_type"] else None,
        f"result {attempt['result_digest'][:12]}…" if attempt["result_digest"] else None,
        attempt["note"],
    ]
    return "; ".join(part for part in parts if part)


def _partition_keys(project: Project, text: str) -> Iterator[str]:
    """Yield the key under which a partition is published, where the text names one."""
    for catalogue in project.catalogues:
        if text.startswith(f"{catalogue.name}/"):
            with suppress(UnknownPartitionError):
                yield key_of(catalogue.parse(text))
