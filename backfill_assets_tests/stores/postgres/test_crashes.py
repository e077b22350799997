"""Whatever is killed, whenever: the next one who comes finds a server and what was committed."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.locks import is_held
from backfill_assets_tests.stores.postgres.processes_of_tests import (
    LONG_COMPUTATION,
    is_quiet,
    keepers,
    kill,
    postmaster,
    running_postmaster,
    server_processes,
    url_from,
    user_process,
    wait_until,
)

STALE = "{pid}\n{data}\n1700000000\n5432\n\n127.0.0.1\n    12345         1\nready   \n"


def write_and_commit(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")


def count_kept(url: str) -> tuple[int] | None:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM kept").fetchone()


def test_a_killed_server_is_started_again_at_the_same_port(folder: Path) -> None:
    server = EmbeddedPostgres(folder)
    before = server.ensure_running()
    write_and_commit(before.url("postgres"))
    kill(running_postmaster(folder))
    after = server.ensure_running()
    assert after == before
    assert count_kept(after.url("postgres")) == (1000,)
    assert len(keepers(folder)) == 1


def test_everything_killed_at_once_is_brought_up_by_the_next_user(folder: Path) -> None:
    with user_process(folder) as user:
        write_and_commit(url_from(user))
        kill(user.pid, *keepers(folder), *server_processes(folder))
    assert count_kept(EmbeddedPostgres(folder, durable=False).url("postgres")) == (1000,)
    assert len(keepers(folder)) == 1


def test_a_killed_connection_process_makes_the_server_restart_itself(
    server: EmbeddedPostgres, folder: Path
) -> None:
    write_and_commit(server.url("postgres"))
    pid = postmaster(folder)
    with psycopg.connect(server.url("postgres")) as connection:
        kill(connection.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT pg_sleep(5)")
    # It recovers by itself; meanwhile it turns connections away.
    wait_until(lambda: has_recovered((folder / "server.log").read_text()))
    assert count_kept(server.url("postgres")) == (1000,)
    assert postmaster(folder) == pid


def has_recovered(log: str) -> bool:
    _, crashed, after = log.partition("all server processes terminated")
    return bool(crashed) and "ready to accept connections" in after


@pytest.mark.parametrize("also_initdb", [True, False], ids=["with initdb", "and initdb goes on"])
def test_a_maker_that_is_killed_in_the_middle_leaves_no_half_cluster(
    empty_folder: Path,
    also_initdb: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    with user_process(empty_folder) as user:
        wait_until(lambda: list(empty_folder.glob("making-*/data/PG_VERSION")))
        initdb = [p.pid for p in psutil.Process(user.pid).children(recursive=True)]
        kill(user.pid, *(initdb if also_initdb else []))
        assert not (empty_folder / "data").exists()
    write_and_commit(EmbeddedPostgres(empty_folder, durable=False).url("postgres"))
    assert not list(empty_folder.glob("making-*"))


def is_launched(folder: Path) -> bool:
    return is_held(ServerFolder(folder).server_lock) and bool(server_processes(folder))


def has_pid_file(folder: Path) -> bool:
    return postmaster(folder) is not None


@pytest.mark.parametrize("moment", [is_launched, has_pid_file])
def test_everything_killed_while_the_server_starts_is_brought_up_again(
    folder: Path, moment: Callable[[Path], bool]
) -> None:
    with user_process(folder) as user:
        wait_until(lambda: moment(folder))
        kill(user.pid, *keepers(folder), *server_processes(folder))
    server = EmbeddedPostgres(folder, durable=False)
    write_and_commit(server.url("postgres"))
    assert len(keepers(folder)) == 1


@pytest.mark.parametrize("moment", [is_launched, has_pid_file])
def test_a_server_whose_starter_is_killed_while_it_starts_does_not_stay_alone(
    folder: Path, moment: Callable[[Path], bool]
) -> None:
    with user_process(folder) as user:
        wait_until(lambda: moment(folder))
        kill(user.pid)
        user.wait()
        wait_until(lambda: is_quiet(folder))
        assert not server_processes(folder)


def test_a_stale_pid_file_that_names_a_living_stranger_costs_neither(
    server: EmbeddedPostgres, folder: Path
) -> None:
    # Its working folder alone does not make it ours.
    with subprocess.Popen(["sleep", "60"], cwd=folder / "data") as stranger:
        leave_pid_file(folder, stranger.pid)
        write_and_commit(server.url("postgres"))
        assert stranger.poll() is None
        stranger.kill()


def test_a_stale_pid_file_that_names_another_project_s_server_costs_neither(
    server: EmbeddedPostgres, folder: Path, postgres: EmbeddedPostgres
) -> None:
    with psycopg.connect(postgres.url("postgres")) as connection:
        other = psutil.Process(connection.info.backend_pid).ppid()
        leave_pid_file(folder, other)
        assert running_postmaster_after_start(server, folder) != other
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_stale_pid_file_that_names_a_zombie_is_no_obstacle(
    server: EmbeddedPostgres, folder: Path
) -> None:
    with subprocess.Popen(["true"]) as dead:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(dead.pid).status() == psutil.STATUS_ZOMBIE
        leave_pid_file(folder, dead.pid)
        write_and_commit(server.url("postgres"))


def test_a_stale_pid_file_that_names_nobody_is_left_to_postgresql(
    server: EmbeddedPostgres, folder: Path
) -> None:
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    leave_pid_file(folder, dead.pid)
    write_and_commit(server.url("postgres"))


def test_an_orphan_that_computes_on_after_its_server_was_killed_is_ended(
    server: EmbeddedPostgres, folder: Path
) -> None:
    write_and_commit(server.url("postgres"))
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        orphan = connection.info.backend_pid
        connection.pgconn.send_query(LONG_COMPUTATION)
        wait_until(lambda: psutil.Process(orphan).cpu_times().user > 0.1)
        kill(running_postmaster(folder))
        wait_until(lambda: server_processes(folder) == [orphan])
        assert count_kept(server.url("postgres")) == (1000,)
        assert orphan not in server_processes(folder)
        connection.close()


def test_a_server_that_someone_is_stopping_is_waited_for_and_started_again(
    server: EmbeddedPostgres, folder: Path
) -> None:
    with psycopg.connect(server.url("postgres")):
        pid = running_postmaster(folder)
        # Politely: it would wait for this connection to end.
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: "stopping" in (folder / "data" / "postmaster.pid").read_text())
        assert running_postmaster_after_start(server, folder) != pid


def test_a_pid_file_that_was_deleted_under_a_running_server_is_no_obstacle(
    server: EmbeddedPostgres, folder: Path
) -> None:
    write_and_commit(server.url("postgres"))
    (folder / "data" / "postmaster.pid").unlink()
    assert count_kept(server.url("postgres")) == (1000,)


def leave_pid_file(folder: Path, pid: int) -> None:
    stale = STALE.format(pid=pid, data=folder / "data")
    (folder / "data" / "postmaster.pid").write_text(stale)


def running_postmaster_after_start(server: EmbeddedPostgres, folder: Path) -> int:
    with psycopg.connect(server.url("postgres")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    return running_postmaster(folder)
