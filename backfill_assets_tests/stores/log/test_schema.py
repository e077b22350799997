"""The tables are made once, changed one version at a time, and never by a program that is older."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.core.errors import LogSchemaError
from backfill_assets.stores.log import schema
from backfill_assets.stores.sql import Statements
from backfill_assets_tests.stores.children import in_child
from backfill_assets_tests.stores.log.test_rivals import together
from backfill_assets_tests.stores.log.world import CALL, World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as one:
        yield one


@pytest.fixture
def two_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a later program, whose second version has another column."""
    second = "ALTER TABLE idempotency_log ADD COLUMN colour text"
    texts = MappingProxyType({**schema._STATEMENTS.texts, "version_2": second})
    monkeypatch.setattr(schema, "_STATEMENTS", Statements("schema.sql", texts))
    monkeypatch.setattr(schema, "VERSION", 2)


def versions(connection: psycopg.Connection) -> list[int]:
    return [v for (v,) in connection.execute("SELECT version FROM log_schema ORDER BY 1")]


def test_preparing_twice_is_preparing_once(connection: psycopg.Connection) -> None:
    schema.prepare_schema(connection)
    schema.prepare_schema(connection)

    assert versions(connection) == [1]


def test_processes_that_prepare_at_once_make_the_tables_once(database: str) -> None:
    def first_use() -> object:
        return World(database).log("w").claim_many(CALL, {"k": 1})["k"].__class__.__name__

    answers = together([first_use] * 6)

    assert sorted(answers) == ["Busy"] * 5 + ["Claimed"]  # type: ignore[type-var]
    with psycopg.connect(database) as connection:
        assert versions(connection) == [1]


def test_tables_of_a_newer_program_are_refused_and_left_alone(
    connection: psycopg.Connection, database: str
) -> None:
    schema.prepare_schema(connection)
    connection.execute("INSERT INTO log_schema (version) VALUES (7)")

    with pytest.raises(LogSchemaError, match="tables of version 7, and this program knows version"):
        World(database).log().claim_many(CALL, {"k": 1})

    assert versions(connection) == [1, 7]


def test_tables_of_an_older_program_are_brought_up_and_keep_their_rows(
    connection: psycopg.Connection, database: str, request: pytest.FixtureRequest
) -> None:
    def use() -> object:
        return World(database).log().run(CALL, "k", 1, lambda _: "done")

    assert in_child(use) == "done"
    request.getfixturevalue("two_versions")

    schema.prepare_schema(connection)

    assert versions(connection) == [1, 2]
    rows = connection.execute("SELECT idempotency_key, colour FROM idempotency_log").fetchall()
    assert rows == [("k", None)]


@pytest.mark.usefixtures("two_versions")
def test_a_change_that_fails_leaves_the_old_tables(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {**schema._STATEMENTS.texts, "version_2": "ALTER TABLE no_such_table ADD x text"}
    monkeypatch.setattr(schema, "_STATEMENTS", Statements("schema.sql", MappingProxyType(texts)))

    with pytest.raises(psycopg.errors.UndefinedTable):
        schema.prepare_schema(connection)

    assert connection.execute("SELECT to_regclass('idempotency_log')").fetchone() == (None,)
