"""The tables: made once, by whoever comes first, and left alone by an older program."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.core.errors import LogSchemaError
from backfill_assets.stores.sagas.schema import prepare_schema

if TYPE_CHECKING:
    from backfill_assets_tests.stores.sagas.trip import World


def test_processes_that_come_up_together_make_the_tables_once(database: str) -> None:
    ready = threading.Barrier(4)
    failed: list[psycopg.Error] = []

    def come_up() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            ready.wait()
            try:
                prepare_schema(connection)
            except psycopg.Error as error:
                failed.append(error)

    threads = [threading.Thread(target=come_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with psycopg.connect(database, autocommit=True) as connection:
        assert connection.execute("SELECT version FROM saga_schema").fetchall() == [(1,)]


def test_tables_of_a_newer_program_are_refused(world: World) -> None:
    world.execute("INSERT INTO saga_schema (version) VALUES (2)")
    with (
        psycopg.connect(world.url, autocommit=True) as connection,
        pytest.raises(LogSchemaError, match="has sagas of version 2, and this program knows"),
    ):
        prepare_schema(connection)


def test_a_saga_that_moves_without_an_instant_or_waits_without_a_question_cannot_be_stored(
    world: World,
) -> None:
    world.start(world.sagas())
    for change in (
        "UPDATE saga SET due_at = NULL",
        "UPDATE saga SET status = 'AWAITING_DECISION', due_at = NULL",
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            world.execute(change)
