"""The fixtures that other tests stand on."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg

from backfill_assets_tests.postgres_fixtures import PREFIX, sweep_dead_sessions, temporary_folder
from backfill_assets_tests.stores.postgres.processes_of_tests import (
    is_quiet,
    python_path,
    wait_until,
)

Clone = Callable[[str, Callable[[str], None]], str]

SUICIDAL_TEST = """
import os
def test_that_is_killed(postgres):
    print("FOLDER", postgres._folder.path, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_test_gets_an_empty_database_of_its_own(database: str) -> None:
    with psycopg.connect(database) as connection:
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert connection.execute(tables).fetchone() == (0,)


def test_a_template_is_prepared_once_and_its_clones_are_independent(clone_database: Clone) -> None:
    prepared = []

    def prepare(url: str) -> None:
        prepared.append(url)
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE numbers AS SELECT generate_series(1, 10) AS n")

    first, second = clone_database("numbers", prepare), clone_database("numbers", prepare)
    with psycopg.connect(first) as connection:
        connection.execute("DELETE FROM numbers")
    with psycopg.connect(second) as connection:
        assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (10,)
    assert len({first, second, *prepared}) == 3
    assert len(prepared) == 1


def test_the_server_of_a_session_that_is_killed_stops(tmp_path: Path) -> None:
    (tmp_path / "test_killed.py").write_text(SUICIDAL_TEST)
    plugin = "backfill_assets_tests.postgres_fixtures"
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", plugin, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": python_path()}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    folder = Path(done.stdout.partition("FOLDER ")[2].split()[0])
    assert folder.name.startswith(PREFIX)
    wait_until(lambda: is_quiet(folder))
    # A later session removes what this one could not.
    with temporary_folder() as later:
        age(folder, seconds=3600)
        sweep_dead_sessions(later)
        assert later.exists()
    assert not folder.exists()


def test_sessions_that_live_are_not_swept() -> None:
    with temporary_folder() as alive, temporary_folder() as later:
        sweep_dead_sessions(later)
        assert alive.exists()


def age(folder: Path, *, seconds: int) -> None:
    then = folder.stat().st_mtime - seconds
    os.utime(folder, (then, then))
