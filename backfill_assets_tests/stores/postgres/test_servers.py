"""A server of the user's own, named by a URL, and what is said when it cannot be used."""

import os
import socket
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from backfill_assets.stores.postgres.connections import loss_is_told
from backfill_assets.stores.postgres.databases import Databases
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.errors import (
    DatabaseRefusedError,
    DatabaseRightError,
    DatabaseUnreachableError,
    DatabaseUrlError,
)
from backfill_assets.stores.postgres.ports import free_port
from backfill_assets.stores.postgres.servers import (
    ExternalPostgres,
    PostgresServer,
    postgres_server,
)

SECRET = "s3cret@/:?#"  # noqa: S105 - of a role that lives for one test


@pytest.fixture
def limited_role(database: str) -> Iterator[str]:
    """A URL as a role that may log in and nothing more."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE limited LOGIN PASSWORD '{SECRET}'")
        yield f"postgresql://limited:{quote(SECRET, safe='')}@{database.rpartition('@')[2]}"
        connection.execute("DROP ROLE limited")


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_the_names_are_alike_in_every_process(tmp_path: Path) -> None:
    assert postgres_server(None, tmp_path).databases == Databases(
        source="backfill", dagster="backfill_dagster", log="backfill_log"
    )
    assert postgres_server("postgresql://host/shop", tmp_path).databases == Databases(
        source="shop", dagster="shop_dagster", log="shop_log"
    )
    assert list(tmp_path.iterdir()) == []


def test_no_url_means_the_embedded_server(tmp_path: Path) -> None:
    servers: list[PostgresServer] = [
        postgres_server(url, tmp_path) for url in (None, "", " \n", "postgresql://host/shop")
    ]
    kinds = [type(server) for server in servers]
    assert kinds == [EmbeddedPostgres, EmbeddedPostgres, EmbeddedPostgres, ExternalPostgres]


def test_only_the_database_of_the_url_is_replaced() -> None:
    server = ExternalPostgres("postgres://me:p%40ss@db.example:6432/shop?sslmode=require")
    expected = "postgresql://me:p%40ss@db.example:6432/shop_log?sslmode=require"
    assert server.url("shop_log") == expected


def test_a_url_without_a_host_keeps_its_form() -> None:
    server = ExternalPostgres("postgresql:///shop?host=/var/run/postgresql")
    assert server.url("shop_log") == "postgresql:///shop_log?host=/var/run/postgresql"


def test_databases_are_made_once_whoever_asks_at_the_same_time(database: str) -> None:
    server = ExternalPostgres(database)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(server.ensure_database, [server.databases.log] * 6))
    with psycopg.connect(server.url(server.databases.log)) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == (server.databases.log,)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {server.databases.log}")


def test_the_base_database_itself_may_be_missing(database: str) -> None:
    url = database + "_missing"
    server = ExternalPostgres(url)
    server.ensure_database(server.databases.source)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {server.databases.source}")


def test_a_role_that_may_not_create_databases_gets_the_sql_to_run(limited_role: str) -> None:
    server = ExternalPostgres(limited_role)
    server.ensure_database(server.databases.source)  # it is there: no right is needed
    with pytest.raises(DatabaseRightError) as caught:
        server.ensure_database(server.databases.log)
    message = str(caught.value)
    assert "BACKFILL_DATABASE_URL" in message
    assert f'CREATE DATABASE "{server.databases.log}" OWNER "limited";' in message
    assert 'ALTER ROLE "limited" CREATEDB;' in message
    assert SECRET not in shown(caught.value)


def test_a_wrong_password_is_refused_without_being_shown(limited_role: str) -> None:
    server = ExternalPostgres(limited_role.replace("s3cret", "wr0ng"))
    with pytest.raises(DatabaseRefusedError) as caught:
        server.ensure_database("anything")
    message = str(caught.value)
    assert "BACKFILL_DATABASE_URL (user 'limited' at 127.0.0.1:" in message
    assert "password authentication failed" in message
    assert "Correct user and password" in message
    assert "wr0ng" not in shown(caught.value)


def test_a_server_that_does_not_answer_is_named_with_host_and_port() -> None:
    port = free_port()
    server = ExternalPostgres(f"postgresql://me:s3cret@127.0.0.1:{port}/shop")
    with pytest.raises(DatabaseUnreachableError) as caught:
        server.ensure_database("shop")
    assert f"BACKFILL_DATABASE_URL (user 'me' at 127.0.0.1:{port}, database 'shop')" in str(
        caught.value
    )
    assert "Start it, or correct host and port" in str(caught.value)
    assert "s3cret" not in shown(caught.value)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://me:s3cret@host/shop", "begins with 'mysql'"),
        ("postgresql+psycopg2://me:s3cret@host/shop", "begins with 'postgresql+psycopg2'"),
        ("host=localhost password=s3cret", "begins with no '://'"),
        ("postgresql://me:s3cret@host", "names no database"),
        ("postgresql://me:s3cret@host/", "names no database"),
        ("postgresql://me:s3cret@host/a/b", "names no database"),
        ("postgresql://me:s3cret@@host:x/shop", "cannot be read as a URL"),
        ("postgresql://me:s3cret/more@host/shop", "cannot be read as a URL"),
        ("postgresql://me:s3cret@host/shop?no_such_option=1", "cannot be read as a URL"),
        ("postgresql://host/" + "x" * 60, "too long"),
    ],
)
def test_a_malformed_url_is_refused_at_once_and_never_shown(url: str, complaint: str) -> None:
    with pytest.raises(DatabaseUrlError) as caught:
        ExternalPostgres(url)
    assert str(caught.value).startswith("BACKFILL_DATABASE_URL: ")
    assert complaint in str(caught.value)
    assert "s3cret" not in shown(caught.value).replace(url, "")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("ending", ["pg_terminate_backend(pg_backend_pid())", "killed"])
def test_a_server_that_goes_away_in_the_middle_is_no_error_of_the_statement(
    database: str, ending: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        if ending == "killed":
            connection.execute("SELECT 1")
            # What a killed server looks like from here, and leaves those of other tests alone.
            with socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
            statement = "SELECT 1"
        else:
            statement = f"SELECT {ending}"
        with (
            pytest.raises(DatabaseUnreachableError, match=r"^the shop: PostgreSQL went away in"),
            loss_is_told(connection, "the shop"),
        ):
            connection.execute(statement)


def test_what_else_a_statement_says_passes(database: str) -> None:
    with (
        psycopg.connect(database, autocommit=True) as connection,
        pytest.raises(psycopg.errors.LockNotAvailable),
        loss_is_told(connection, "the shop"),
    ):
        connection.execute("DO $$ BEGIN RAISE EXCEPTION 'busy' USING ERRCODE = '55P03'; END $$")
