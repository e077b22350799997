"""When the server stops: after its last user, however that ended, and not before."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import psycopg

from backfill_assets.stores.postgres import keeper
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets_tests.stores.postgres.processes_of_tests import (
    FORKING_USER,
    is_quiet,
    keepers,
    kill,
    postmaster,
    running_postmaster,
    url_from,
    user_process,
    wait_until,
)


def test_the_server_stops_when_its_last_user_is_killed_and_not_before(folder: Path) -> None:
    with user_process(folder) as first, user_process(folder) as second:
        assert url_from(first) == url_from(second)
        pid = running_postmaster(folder)
        first.kill()
        first.wait()
        with psycopg.connect(EmbeddedPostgres(folder, durable=False).url("postgres")):
            EmbeddedPostgres(folder, durable=False).leave()
        assert postmaster(folder) == pid
        second.kill()
        second.wait()
        wait_until(lambda: is_quiet(folder))
    assert "received fast shutdown request" in (folder / "server.log").read_text()


def test_it_stops_when_its_last_user_leaves(server: EmbeddedPostgres, folder: Path) -> None:
    server.ensure_running()
    server.leave()
    wait_until(lambda: is_quiet(folder))


def test_the_terminal_s_signals_reach_neither_the_server_nor_its_keeper(
    server: EmbeddedPostgres, folder: Path
) -> None:
    with user_process(folder) as starter:
        url_from(starter)
        server.ensure_running()
        pids = [running_postmaster(folder), *keepers(folder)]
        assert len(pids) == 2
        assert os.getsid(starter.pid) not in {os.getsid(pid) for pid in pids}
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.killpg(starter.pid, number)
        starter.wait()
    assert [running_postmaster(folder), *keepers(folder)] == pids
    with psycopg.connect(server.url("postgres")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_killed_keeper_is_replaced_and_the_server_stays(
    server: EmbeddedPostgres, folder: Path
) -> None:
    server.ensure_running()
    pid = postmaster(folder)
    (first,) = keepers(folder)
    kill(first)
    server.ensure_running()
    (second,) = keepers(folder)
    assert second != first
    assert postmaster(folder) == pid
    server.leave()
    wait_until(lambda: is_quiet(folder))


def test_a_keeper_whose_starter_was_killed_meanwhile_keeps_the_server_all_the_same(
    server: EmbeddedPostgres, folder: Path
) -> None:
    server.ensure_running()
    kill(*keepers(folder))
    command = [sys.executable, "-I", "-S", keeper.__file__, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.close()
    wait_until(lambda: keepers(folder))
    before = keepers(folder)
    server.ensure_running()
    assert keepers(folder) == before
    server.leave()
    wait_until(lambda: is_quiet(folder))
    assert "Traceback" not in (folder / "server.log").read_text()


def test_who_comes_while_the_last_one_leaves_finds_a_server(
    server: EmbeddedPostgres, folder: Path
) -> None:
    moments = random.Random(7)
    for _ in range(8):
        with psycopg.connect(server.url("postgres")) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert len(keepers(folder)) == 1
        server.leave()
        threading.Event().wait(moments.random() * 0.1)
    with psycopg.connect(server.url("postgres")) as connection:
        # Still there a moment later: no keeper of the past stops it.
        threading.Event().wait(0.3)
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_forked_child_that_leaves_or_ends_takes_nothing_from_its_parent(
    server: EmbeddedPostgres, folder: Path
) -> None:
    server.ensure_running()
    pid = postmaster(folder)
    child = os.fork()
    if child == 0:
        server.leave()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    threading.Event().wait(0.3)
    assert postmaster(folder) == pid
    server.leave()
    wait_until(lambda: is_quiet(folder))


def test_a_forked_child_keeps_the_server_that_its_killed_parent_used(folder: Path) -> None:
    with user_process(folder, script=FORKING_USER) as parent:
        url = url_from(parent)
        wait_until(lambda: len(psutil.Process(parent.pid).children()) == 1)
        (child,) = psutil.Process(parent.pid).children()
        kill(parent.pid)
        parent.wait()
        threading.Event().wait(0.3)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        kill(child.pid)
        wait_until(lambda: is_quiet(folder))


def test_the_keeper_touches_no_stranger_that_the_pid_file_names(folder: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (folder / "data" / "postmaster.pid").write_text(f"{stranger.pid}\n{folder}/data\n")
        keeper.stop_server(folder)
        assert stranger.poll() is None
        stranger.kill()


def test_the_log_does_not_grow_without_bound(server: EmbeddedPostgres, folder: Path) -> None:
    server.ensure_running()
    log = folder / "server.log"
    with log.open("ab") as opened:
        opened.write(b"x" * keeper.MAX_LOG_BYTES)
    (pid,) = keepers(folder)
    os.kill(pid, signal.SIGALRM)  # its timer's signal
    wait_until(lambda: log.stat().st_size == 0)
    assert (folder / "server.log.1").stat().st_size > keeper.MAX_LOG_BYTES
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute("DO $$ BEGIN RAISE WARNING 'seen'; END $$")
    wait_until(lambda: "seen" in log.read_text())
    assert log.stat().st_size < 1000
    assert len(keepers(folder)) == 1
