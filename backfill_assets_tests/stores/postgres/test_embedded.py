"""The embedded server as its callers see it."""

import os
import shutil
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest
import sqlalchemy as sa

from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.errors import FolderError, ServerStartError
from backfill_assets.stores.postgres.folder import MAX_PATH_BYTES
from backfill_assets_tests.stores.postgres.processes_of_tests import (
    is_quiet,
    keepers,
    postmaster,
    running_postmaster,
    wait_until,
)

MEANT_FOR_OTHER_SERVERS = {
    "PGPORT": "1",
    "PGHOSTADDR": "192.0.2.1",
    "PGDATA": "/nowhere",
    "PGSSLMODE": "require",
    "PGGSSENCMODE": "require",
    "PGCHANNELBINDING": "require",
    "PGTARGETSESSIONATTRS": "read-only",
    "PGOPTIONS": "-c default_transaction_read_only=on",
}


def test_the_first_start_makes_a_durable_cluster_and_a_restart_keeps_the_data(
    empty_folder: Path,
) -> None:
    server = EmbeddedPostgres(empty_folder / "made" / "on the way")
    server.ensure_database("backfill")
    with psycopg.connect(server.url("backfill")) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        durability = [
            connection.execute(f"SHOW {name}").fetchone()
            for name in ("fsync", "synchronous_commit", "full_page_writes")
        ]
    server.leave()
    wait_until(lambda: is_quiet(empty_folder / "made" / "on the way"))
    with psycopg.connect(server.url("backfill")) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
    assert durability == [("on",), ("on",), ("on",)]
    assert not list(empty_folder.rglob("making-*"))
    server.leave()
    wait_until(lambda: is_quiet(empty_folder / "made" / "on the way"))


def test_to_ensure_again_costs_next_to_nothing_and_changes_nothing(
    server: EmbeddedPostgres, folder: Path
) -> None:
    first = server.ensure_running()
    pid = postmaster(folder)
    begun = time.monotonic()
    addresses = {server.ensure_running() for _ in range(100)}
    assert time.monotonic() - begun < 1  # 0.02 s on an idle machine
    assert addresses == {first}
    assert postmaster(folder) == pid


def test_many_that_come_at_once_share_one_server(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        servers = [EmbeddedPostgres(folder, durable=False) for _ in range(8)]
        addresses = set(pool.map(EmbeddedPostgres.ensure_running, servers))
    assert len(addresses) == 1
    assert len(keepers(folder)) == 1


def test_two_projects_run_side_by_side(
    server: EmbeddedPostgres, postgres: EmbeddedPostgres
) -> None:
    assert server.ensure_running().port != postgres.ensure_running().port


def test_it_listens_on_loopback_only_and_makes_no_socket_file(
    server: EmbeddedPostgres, folder: Path
) -> None:
    address = server.ensure_running()
    connections = psutil.Process(running_postmaster(folder)).net_connections("all")
    listening = {c.laddr for c in connections if c.status == psutil.CONN_LISTEN}
    assert listening == {("127.0.0.1", address.port)}
    assert not list(folder.rglob(".s.PGSQL*"))


def test_it_asks_everybody_for_the_password_which_only_the_owner_can_read(
    server: EmbeddedPostgres, folder: Path
) -> None:
    address = server.ensure_running()
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(address.url("postgres").replace(address.password, "guessed"))
    password_file = folder / "data" / "backfill_password"
    assert stat.S_IMODE(password_file.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "data").stat().st_mode) == 0o700
    rules = (folder / "data" / "pg_hba.conf").read_text().splitlines()
    methods = {rule.split()[-1] for rule in rules if rule and not rule.startswith("#")}
    assert methods == {"scram-sha-256"}
    assert address.password not in repr(address)


def test_a_database_is_made_once_whoever_asks_at_the_same_time(server: EmbeddedPostgres) -> None:
    server.ensure_running()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(server.ensure_database, ["backfill_log"] * 6))
    with psycopg.connect(server.url("backfill_log")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_folder_with_something_else_in_the_cluster_s_place_is_refused(empty_folder: Path) -> None:
    (empty_folder / "data").mkdir()
    with pytest.raises(FolderError, match=r"data: not a PostgreSQL cluster.*move it away"):
        EmbeddedPostgres(empty_folder).ensure_running()


def test_a_folder_that_is_a_file_is_refused(empty_folder: Path) -> None:
    (empty_folder / "file").touch()
    with pytest.raises(FolderError, match="name another folder"):
        EmbeddedPostgres(empty_folder / "file").ensure_running()


def test_a_folder_may_be_as_deep_as_the_limit_says_and_no_deeper(empty_folder: Path) -> None:
    folder = empty_folder
    while (left := MAX_PATH_BYTES - len(os.fsencode(folder))) > 0:
        folder /= "x" * min(200, left - 1)
    server = EmbeddedPostgres(folder, durable=False)
    server.ensure_database("backfill")
    server.leave()
    wait_until(lambda: is_quiet(folder))

    with pytest.raises(FolderError, match=r"has 902 bytes.* room for 900; name a folder"):
        EmbeddedPostgres(folder / "x").ensure_running()
    assert not (folder / "x/data").exists()


def test_a_folder_may_have_any_name(empty_folder: Path) -> None:
    folder = empty_folder / "-D a b #1?:;50% ünï $HOME quo'te\"s" / "postgres"
    server = EmbeddedPostgres(folder, durable=False)
    server.ensure_database("backfill")
    assert running_postmaster(folder)
    server.leave()
    wait_until(lambda: is_quiet(folder))


def test_a_folder_that_cannot_be_made_is_refused(empty_folder: Path) -> None:
    folder = empty_folder / ("x" * 300)
    with pytest.raises(FolderError, match=r"xxx.*cannot use this folder.*too long"):
        EmbeddedPostgres(folder).ensure_running()


def test_a_server_that_cannot_start_is_reported_with_the_end_of_its_log(
    copied_folder: Path,
) -> None:
    (copied_folder / "data" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(ServerStartError, match=r"server.log ends with:\n.*no_such_setting"):
        EmbeddedPostgres(copied_folder).ensure_running()


def test_real_data_is_never_entrusted_to_a_server_that_was_started_for_tests(
    server: EmbeddedPostgres, folder: Path
) -> None:
    server.ensure_running()
    with pytest.raises(ServerStartError, match="durable=False"):
        EmbeddedPostgres(folder).ensure_running()


def test_a_folder_that_was_deleted_while_in_use_is_made_anew(copied_folder: Path) -> None:
    folder = copied_folder
    server = EmbeddedPostgres(folder, durable=False)
    server.ensure_running()
    old = running_postmaster(folder)
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.ensure_database("backfill")
    assert postmaster(folder) not in {None, old}
    # The old one would notice within a minute that its folder is gone.
    os.kill(old, 9)
    wait_until(lambda: len(keepers(folder)) == 1, seconds=10)


def test_the_environment_s_ideas_of_other_servers_do_not_matter(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MEANT_FOR_OTHER_SERVERS.items():
        monkeypatch.setenv(name, value)
    with psycopg.connect(server.url("postgres")) as connection:
        connection.execute("CREATE TABLE written AS SELECT 1")
        connection.rollback()
    engine = sa.create_engine(server.url("postgres"))  # as Dagster's: another driver, another libpq
    with engine.connect() as opened:
        opened.execute(sa.text("CREATE TABLE written AS SELECT 1"))
        opened.rollback()
    engine.dispose()


def test_a_thread_that_waits_for_the_start_gets_the_same_server(folder: Path) -> None:
    seen = []
    server = EmbeddedPostgres(folder, durable=False)
    threads = [threading.Thread(target=lambda: seen.append(server.url("a b"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 1
    assert "/a%20b?" in seen[0]
