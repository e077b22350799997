"""A real PostgreSQL for tests: one server for the session, a database for each test.

A database that takes long to prepare (schema, loaded data) is prepared once, as a template, and
cloned. Where no server can run, tests fail: a database that is not tested does not work.
"""

import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.locks import heritable

PREFIX = "backfill-pg-"
STOP_SECONDS = 60  # a user that a test left behind keeps the server; say so in the end
YOUNG_SECONDS = 600  # a session that is just beginning has no user yet

Prepare = Callable[[str], None]  # gets the URL of an empty database, and fills it


@contextmanager
def temporary_folder(prefix: str = PREFIX) -> Iterator[Path]:
    """Yield a folder that every account may enter, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))  # short, and for all
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def running_server(folder: Path, *, durable: bool) -> Iterator[EmbeddedPostgres]:
    """Yield a running server; the folder may go when this has ended."""
    server = EmbeddedPostgres(folder, durable=durable)
    server.ensure_running()
    try:
        yield server
    finally:
        server.leave()
        # PostgreSQL's processes hold this lock, to the last of them.
        with heritable(ServerFolder(folder).server_lock, timeout_seconds=STOP_SECONDS):
            pass


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A running server of this session. It stops with it, also when pytest is killed."""
    with temporary_folder() as folder:
        sweep_dead_sessions(folder)
        with running_server(folder, durable=False) as server:
            yield server


def sweep_dead_sessions(own: Path) -> None:
    """Remove the folders of sessions that were killed: theirs has no user any more."""
    for folder in own.parent.glob(f"{PREFIX}*"):
        try:
            is_old = own.stat().st_mtime - folder.stat().st_mtime > YOUNG_SECONDS
            if folder != own and is_old and _is_unused(folder):
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            continue


def _is_unused(folder: Path) -> bool:
    """Return whether neither a user nor a process of the server is left."""
    for name in ("users.lock", "server.lock"):
        try:
            descriptor = os.open(folder / name, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
    return True


class Workshop:
    """Makes, clones and drops the databases of one server.

    Names are numbered, never reused: a connection that outlives its test meets nobody's data.
    """

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._prepared: dict[str, str] = {}

    def create(self) -> str:
        """Return the URL of a new, empty database."""
        return self._copy_of("template1")

    def clone(self, template: str, prepare: Prepare) -> str:
        """Return the URL of a new database like the one that ``prepare`` made of an empty one.

        Args:
            template: Names the template; the same name is prepared once in a session.
            prepare: Gets a URL; closes every connection it opens.
        """
        if template not in self._prepared:
            url = self.create()
            prepare(url)
            # Only now: a preparation that failed is tried again by the next test.
            self._prepared[template] = url.rpartition("/")[2]
        return self._copy_of(self._prepared[template])

    def drop(self, url: str) -> None:
        """Drop the database, whoever is still connected."""
        name = sql.Identifier(url.rpartition("/")[2])
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def _copy_of(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(template)
        )
        self._execute(statement)
        # Without parameters: tests append to the name.
        return self._server.url(name).partition("?")[0]

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._server.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)


@pytest.fixture(scope="session")
def workshop(postgres: EmbeddedPostgres) -> Workshop:
    """What the other fixtures share: it remembers which templates are prepared."""
    return Workshop(postgres)


@pytest.fixture
def database(workshop: Workshop) -> Iterator[str]:
    """The URL of an empty database, dropped after the test."""
    url = workshop.create()
    yield url
    workshop.drop(url)


@pytest.fixture
def clone_database(workshop: Workshop) -> Iterator[Callable[[str, Prepare], str]]:
    """``clone_database(template_name, prepare)``: the URL of a clone, dropped after the test."""
    urls: list[str] = []

    def clone(template: str, prepare: Prepare) -> str:
        url = workshop.clone(template, prepare)
        urls.append(url)
        return url

    yield clone
    for url in urls:
        workshop.drop(url)
