"""Root as containers have it: without the right to look at another user's processes."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from backfill_assets.stores.postgres.accounts import dropped_account, own_account
from backfill_assets.stores.postgres.programs import Programs
from backfill_assets_tests.stores.postgres.processes_of_tests import (
    LONG_COMPUTATION,
    is_quiet,
    kill,
    running_postmaster,
    server_processes,
    url_from,
    user_process,
    wait_until,
)

IS_ROOT = os.geteuid() == 0

# Uses the server once for each line of its input, and until that ends.
ASKING_USER = """
import os, sys
from pathlib import Path
from backfill_assets.stores.postgres import accounts
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.programs import Programs
account = accounts.own_account() if os.geteuid() else accounts.dropped_account()
programs = Programs(Path("{programs}"), {major})
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False, account=account, programs=programs)
print(server.url("postgres"), flush=True)
for line in sys.stdin:
    print(server.url("postgres"), flush=True)
"""


@pytest.fixture
def script(programs_for_all: Programs) -> str:
    return ASKING_USER.format(programs=programs_for_all.folder, major=programs_for_all.major)


def command() -> tuple[str, ...]:
    """Return how to run a Python as root without the right, or as ourselves."""
    if not IS_ROOT:
        return (sys.executable,)
    return ("setpriv", "--inh-caps=-all", "--bounding-set=-sys_ptrace,-sys_admin", sys.executable)


def ask_again(user: subprocess.Popen[str]) -> str:
    assert user.stdin is not None
    user.stdin.write("\n")
    user.stdin.flush()
    return url_from(user)


def test_root_of_a_container_shares_a_server_of_another_user_which_stops_with_the_last(
    empty_folder: Path, script: str
) -> None:
    with user_process(empty_folder, script=script, command=command()) as first:
        url = url_from(first)
        pid = running_postmaster(empty_folder)
        account = dropped_account() if IS_ROOT else own_account()
        assert psutil.Process(pid).uids().real == (account.uid or os.geteuid())
        assert ask_again(first) == url
        with user_process(empty_folder, script=script, command=command()) as second:
            assert url_from(second) == url
            kill(first.pid)
            assert ask_again(second) == url
            assert running_postmaster(empty_folder) == pid
    wait_until(lambda: is_quiet(empty_folder), seconds=60)
    assert not server_processes(empty_folder)


def test_root_of_a_container_ends_an_orphan_that_computes_on_after_its_server_was_killed(
    empty_folder: Path, script: str
) -> None:
    with (
        user_process(empty_folder, script=script, command=command()) as user,
        psycopg.connect(url_from(user), autocommit=True) as connection,
    ):
        orphan = connection.info.backend_pid
        connection.pgconn.send_query(LONG_COMPUTATION)
        wait_until(lambda: psutil.Process(orphan).cpu_times().user > 0.1)
        kill(running_postmaster(empty_folder))
        wait_until(lambda: server_processes(empty_folder) == [orphan])
        with psycopg.connect(ask_again(user)) as again:
            assert again.execute("SELECT 1").fetchone() == (1,)
        assert orphan not in server_processes(empty_folder)
        connection.close()
