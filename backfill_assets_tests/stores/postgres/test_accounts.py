"""As whom the server runs. Each test has a meaning for root and for an ordinary user."""

import os
import pwd
import shutil
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from backfill_assets.stores.postgres.accounts import (
    Account,
    dropped_account,
    namespace_account,
    needed_paths,
    own_account,
)
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.errors import AccountError, FolderError
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.programs import Programs
from backfill_assets_tests.stores.postgres.processes_of_tests import (
    is_quiet,
    running_postmaster,
    url_from,
    user_process,
    wait_until,
)

IS_ROOT = os.geteuid() == 0


def accounts() -> list[Account]:
    """Return every way that is to work here: both for root, plainly ourselves for others."""
    return [namespace_account(), dropped_account()] if IS_ROOT else [own_account()]


@pytest.mark.parametrize("account", accounts(), ids=lambda account: account.description)
def test_a_cluster_is_made_and_run_and_only_its_folder_changes_owner(
    empty_folder: Path, account: Account, programs_for_all: Programs
) -> None:
    before = [(p.stat().st_uid, p.stat().st_mode) for p in (empty_folder, *empty_folder.parents)]
    server = EmbeddedPostgres(
        empty_folder, durable=False, account=account, programs=programs_for_all
    )
    with psycopg.connect(server.url("postgres")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    owner = os.geteuid() if account.uid is None else account.uid
    assert psutil.Process(running_postmaster(empty_folder)).uids().real == owner
    assert {p.lstat().st_uid for p in (empty_folder / "data").rglob("*")} == {owner}
    assert before == [
        (p.stat().st_uid, p.stat().st_mode) for p in (empty_folder, *empty_folder.parents)
    ]
    server.leave()
    wait_until(lambda: is_quiet(empty_folder))


def test_a_cluster_stays_with_the_account_that_owns_it(
    copied_folder: Path, programs_for_all: Programs
) -> None:
    # Made by root in a namespace; then namespaces were forbidden; then allowed again.
    account = dropped_account() if IS_ROOT else own_account()
    owner = os.geteuid() if account.uid is None else account.uid
    for chosen in (account, None):
        server = EmbeddedPostgres(
            copied_folder, durable=False, account=chosen, programs=programs_for_all
        )
        server.ensure_running()
        assert psutil.Process(running_postmaster(copied_folder)).uids().real == owner
        server.leave()
        wait_until(lambda: is_quiet(copied_folder))


def test_an_account_that_cannot_reach_the_folder_is_refused_by_the_name_of_what_stops_it(
    empty_folder: Path, programs_for_all: Programs
) -> None:
    closed = empty_folder / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o600 if not IS_ROOT else 0o700)
    account = dropped_account() if IS_ROOT else own_account()
    server = EmbeddedPostgres(closed / "inner", account=account, programs=programs_for_all)
    with pytest.raises((AccountError, FolderError)) as caught:
        server.ensure_running()
    closed.chmod(0o700)
    assert str(closed) in str(caught.value)
    assert "name" in str(caught.value)
    assert "folder" in str(caught.value)
    assert not (closed / "inner" / "data").exists()


def test_programs_that_the_account_cannot_reach_are_named(empty_folder: Path) -> None:
    closed = empty_folder / "closed"
    programs = Programs(closed / "bin", 18)
    programs.folder.mkdir(parents=True)
    programs.postgres.touch(mode=0o644)
    closed.chmod(0o700)
    account = dropped_account() if IS_ROOT else own_account()
    obstacle = account.obstacle(needed_paths(ServerFolder(empty_folder), programs))
    assert obstacle == f"it may not enter or execute {closed if IS_ROOT else programs.postgres}"


def test_a_way_that_the_machine_forbids_is_reported_with_what_it_said() -> None:
    forbidden = Account(description="forbidden", prefix=("sh", "-c", "echo no >&2; exit 1"))
    assert forbidden.obstacle([Path("/")]) == "no"
    absent = Account(description="absent", prefix=("no-such-program",))
    assert "no-such-program" in str(absent.obstacle([Path("/")]))


def python_for_all() -> list[str]:
    """Return Pythons that could run our dependencies, preferably the one that runs this."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")]
    return [python for python in found if python is not None]


def test_an_ordinary_user_runs_its_own_server(empty_folder: Path) -> None:
    command: tuple[str, ...] = (sys.executable,)
    if IS_ROOT:
        # Where no other user may run a Python that fits, a namespace makes us one without a right
        # that an ordinary user lacks.
        account = dropped_account()
        reachable = [
            python for python in python_for_all() if account.obstacle([*parents(python)]) is None
        ]
        if reachable:
            user = pwd.getpwuid(account.uid or 0)
            os.chown(empty_folder, user.pw_uid, user.pw_gid)
            ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
            command = ("setpriv", *ids, reachable[0])
        else:
            command = (*namespace_account().prefix, sys.executable)
    packages = Path(psycopg.__file__).parents[1]
    with user_process(empty_folder, command=command, packages=packages) as user_of_server:
        with psycopg.connect(url_from(user_of_server)) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        owner = empty_folder.stat().st_uid
        assert psutil.Process(running_postmaster(empty_folder)).uids().real == owner
    wait_until(lambda: is_quiet(empty_folder))


def parents(path: str) -> list[Path]:
    """Return what must be entered to run the program, links followed, outermost first."""
    program = Path(path).resolve()
    return [*reversed(program.parents), program]
