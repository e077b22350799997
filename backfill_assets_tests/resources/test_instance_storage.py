"""Dagster's storage finds its server, keeps connections, and outlives the server."""

# ruff: noqa: TID251 - checks dagster.yaml as Dagster does, without starting it

import multiprocessing
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import dagster as dg
import psutil
import psycopg
import pytest
import sqlalchemy as sa
from dagster._core.instance.config import dagster_instance_config
from dagster._core.instance.ref import InstanceRef
from psycopg import sql
from sqlalchemy.pool import Pool

from backfill_assets.resources.instance_storage import (
    MAKING_TABLES,
    BackfillInstanceStorage,
    close_connections,
)
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.servers import ExternalPostgres

PROJECT = Path(__file__).parents[2]
ASSET = dg.AssetKey(["flights", "carrier", "departures"])


def report(instance: dg.DagsterInstance, partition: str) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(ASSET, partition=partition))


@contextmanager
def counted_connections() -> Iterator[list[object]]:
    """Yield a list that grows by one with each connection that any pool opens."""
    opened: list[object] = []

    def count(connection: object, _record: object) -> None:
        opened.append(connection)

    sa.event.listen(Pool, "connect", count)
    yield opened
    sa.event.remove(Pool, "connect", count)


def test_the_storage_is_made_again_from_the_reference_that_other_processes_get(
    instance: dg.DagsterInstance,
) -> None:
    report(instance, "2013-08-01|JFK")
    with dg.DagsterInstance.from_ref(instance.get_ref()) as other:
        assert other.get_materialized_partitions(ASSET) == {"2013-08-01|JFK"}


def test_many_statements_share_few_connections(instance: dg.DagsterInstance) -> None:
    report(instance, "2013-08-01|JFK")
    with counted_connections() as opened:
        for number in range(50):
            report(instance, f"2013-08-01|U{number}")
            instance.get_runs(limit=1)
    assert len(opened) <= 2


def test_a_new_instance_uses_the_connections_that_are_there(instance: dg.DagsterInstance) -> None:
    report(instance, "2013-08-01|JFK")
    with counted_connections() as opened:
        for _tick in range(10):
            with dg.DagsterInstance.from_ref(instance.get_ref()) as of_this_tick:
                report(of_this_tick, "2013-08-01|EWR")
    assert not opened


def test_threads_share_an_instance(instance: dg.DagsterInstance) -> None:
    keys = [f"2013-08-01|U{number}" for number in range(100)]
    with ThreadPoolExecutor(max_workers=8) as threads:
        list(threads.map(lambda key: report(instance, key), keys))
    assert instance.get_materialized_partitions(ASSET) == set(keys)


def test_processes_that_come_up_together_agree_on_the_tables(database: str) -> None:
    together = threading.Barrier(4)

    def come_up(_number: int) -> None:
        # A function of its own, and so an engine of its own, as in another process.
        together.wait()
        BackfillInstanceStorage(address=lambda: database)

    with ThreadPoolExecutor(max_workers=4) as threads:
        list(threads.map(come_up, range(4)))
    storage = BackfillInstanceStorage(address=lambda: database)
    assert storage.run_storage.get_runs_count() == 0
    assert storage.event_log_storage.get_maximum_record_id() is None
    close_connections()


def is_somebody_waiting_to_make_tables(watcher: psycopg.Connection) -> bool:
    found = watcher.execute(
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
        " WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
    ).fetchone()
    return found != (0,)


def test_who_comes_up_second_waits_until_the_first_has_made_the_tables(database: str) -> None:
    with (
        psycopg.connect(database) as first,
        psycopg.connect(database, autocommit=True) as watcher,
        ThreadPoolExecutor(max_workers=1) as threads,
    ):
        first.execute("SELECT pg_advisory_xact_lock(%s)", [MAKING_TABLES])
        second = threads.submit(BackfillInstanceStorage, address=lambda: database)
        while not (second.done() or is_somebody_waiting_to_make_tables(watcher)):
            pass
        assert not second.done()
        first.commit()
        assert second.result(timeout=60).run_storage.get_runs_count() == 0
    close_connections()


def report_in_child(reference: InstanceRef, key: str) -> None:
    with dg.DagsterInstance.from_ref(reference) as instance:
        report(instance, key)


def test_a_spawned_process_finds_the_server_by_itself(instance: dg.DagsterInstance) -> None:
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=report_in_child, args=(instance.get_ref(), "2013-08-01|JFK"))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert instance.get_materialized_partitions(ASSET) == {"2013-08-01|JFK"}


def test_a_forked_process_and_its_parent_do_not_share_a_connection(
    instance: dg.DagsterInstance,
) -> None:
    report(instance, "parent, before")
    child = multiprocessing.get_context("fork").Process(target=report, args=(instance, "child"))
    child.start()
    with counted_connections() as opened:
        report(instance, "parent, meanwhile")
    child.join(timeout=60)
    report(instance, "parent, after")
    assert child.exitcode == 0
    assert not opened  # the parent's own connections are still good
    assert instance.get_materialized_partitions(ASSET) == {
        "parent, before",
        "parent, meanwhile",
        "child",
        "parent, after",
    }


def test_the_webservers_settings_are_kept(instance: dg.DagsterInstance) -> None:
    instance.optimize_for_webserver(statement_timeout=12_345, pool_recycle=3600, max_overflow=20)
    report(instance, "2013-08-01|JFK")
    with counted_connections() as opened:
        for _ in range(20):
            instance.get_runs(limit=1)
    assert len(opened) <= 1
    event_log_storage: Any = instance.event_log_storage
    with event_log_storage.index_connection() as connection:
        timeout = connection.execute(sa.text("SHOW statement_timeout")).scalar_one()
    assert timeout == "12345ms"


@pytest.fixture
def own_server() -> Iterator[EmbeddedPostgres]:
    """A server that the test may kill."""
    with tempfile.TemporaryDirectory(prefix="backfill-pg-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder), durable=False)
        server.ensure_database("dagster")
        yield server
        kill(server)
        server.leave()


def kill(server: EmbeddedPostgres) -> int:
    """Kill the server at once, and return the port that it had and that nobody has now."""
    url = server.url("dagster")
    with psycopg.connect(url) as connection:
        found = connection.execute("SHOW data_directory").fetchone()
    assert found is not None
    first_line, *_ = (Path(found[0]) / "postmaster.pid").read_text().splitlines()
    postmaster = psutil.Process(int(first_line))
    processes = [postmaster, *postmaster.children(recursive=True)]
    postmaster.kill()
    _gone, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive
    port = urlsplit(url).port
    assert port is not None
    return port


@pytest.mark.parametrize("for_webserver", [False, True])
def test_a_killed_server_that_comes_back_on_another_port_is_followed(
    own_server: EmbeddedPostgres, *, for_webserver: bool
) -> None:
    storage = BackfillInstanceStorage(address=lambda: own_server.url("dagster"))
    if for_webserver:
        for part in (storage.run_storage, storage.event_log_storage, storage.schedule_storage):
            part.optimize_for_webserver(statement_timeout=15_000, pool_recycle=3600, max_overflow=5)
    assert storage.run_storage.get_runs_count() == 0
    port = kill(own_server)
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        assert storage.run_storage.get_runs_count() == 0
        assert storage.event_log_storage.get_maximum_record_id() is None
    assert urlsplit(own_server.url("dagster")).port != port


def test_the_address_is_asked_for_at_each_new_connection_only(database: str) -> None:
    asked: list[str] = []

    def address() -> str:
        asked.append(database)
        return database

    storage = BackfillInstanceStorage(address=address)
    asked.clear()
    with counted_connections() as opened:
        for _ in range(20):
            storage.run_storage.get_runs_count()
    assert len(asked) == len(opened)
    close_connections()


def test_a_database_may_have_any_name_that_postgresql_allows(database: str) -> None:
    server = ExternalPostgres(database + quote("_My Shöp? 50%+", safe=""))
    name = server.databases.source
    server.ensure_database(name)
    storage = BackfillInstanceStorage(address=lambda: server.url(name))
    assert storage.run_storage.get_runs() == []
    close_connections()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def test_tables_are_left_to_whoever_makes_them_on_request(database: str) -> None:
    storage = BackfillInstanceStorage(address=lambda: database, should_autocreate_tables=False)
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'runs'")
        assert found.fetchone() == (0,)
    assert storage.should_autocreate_tables is False


def test_the_projects_dagster_yaml_fits_dagsters_schema() -> None:
    settings, instance_class = dagster_instance_config(str(PROJECT))
    assert instance_class is None
    assert settings["storage"] == {
        "custom": {
            "module": BackfillInstanceStorage.__module__,
            "class": BackfillInstanceStorage.__name__,
            "config": {},
        }
    }
    assert settings["telemetry"] == {"enabled": False}
