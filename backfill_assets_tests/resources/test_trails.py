"""Everything known about one item, as a terminal shows it and as JSON."""

from __future__ import annotations

import io
import json
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from backfill_assets.core.errors import NotAppliedError, OperationFailedError
from backfill_assets.core.operations import Kind, Operation
from backfill_assets.resources import trails
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.publishing_log import PUBLISH, key_of
from backfill_assets_tests.resources.small_project import SHOPS, a_project

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.resources.project import Project

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ASK = Operation(name="ask", kind=Kind.REMOTE, is_deduplicated=True)
TELL = Operation(name="tell", kind=Kind.REMOTE, is_deduplicated=True)


class Clock:
    now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path / "store")


def log_of(url: str, clock: Clock) -> IdempotencyLog:
    return IdempotencyLog(lambda: url, worker="me", clock=clock)


def fail(*_: object) -> None:
    raise NotAppliedError("no room left")


def test_a_key_tells_its_steps_in_order_with_every_attempt_and_its_reason(
    database: str, project: Project
) -> None:
    clock = Clock()
    with closing(log_of(database, clock)) as log:
        log.run(ASK, "k", 1, lambda _: "yes")
        clock.now += timedelta(seconds=1)
        with pytest.raises(OperationFailedError):
            log.run(TELL, "k", 2, fail)
        clock.now += timedelta(hours=1)
        log.run(TELL, "k", 2, lambda _: None)
    found = trails.trail(project, log_of(database, clock), "k")
    out = io.StringIO()
    trails.print_trail(Console(file=out, width=200), found)
    first, second, third, fourth, fifth = out.getvalue().splitlines()
    assert first == "ask k: COMPLETED"
    assert second.startswith("  1 SUCCEEDED; 2026-01-01T12:00:00 by me; result ")
    assert third == "tell k: COMPLETED"
    assert fourth == "  1 FAILED; 2026-01-01T12:00:01 by me; NotAppliedError: no room left"
    assert fifth.startswith("  2 SUCCEEDED; 2026-01-01T13:00:01 by me; result ")
    told = json.loads(json.dumps(trails.trail_facts(found)))
    assert [(one["operation"], one["result"]) for one in told] == [("ask", "yes"), ("tell", None)]
    assert [a["outcome"] for a in told[1]["attempts"]] == ["FAILED", "SUCCEEDED"]


def test_a_partition_is_found_by_its_name(database: str, project: Project) -> None:
    partition = SHOPS.partition("article/sold", date(2024, 3, 5), "Paris")
    clock = Clock()
    with closing(log_of(database, clock)) as log:
        log.run(PUBLISH, key_of(partition), None, lambda _: "digest")
    (one,) = trails.trail(project, log_of(database, clock), str(partition))
    assert (one.state.operation, one.state.result) == ("publish", "digest")


def test_what_nobody_knows_has_no_trail(database: str, project: Project) -> None:
    assert trails.trail(project, log_of(database, Clock()), "shops/nothing") == []
