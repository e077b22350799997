"""``backfill-assets up``: everything that runs, from an empty folder to a complete history."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import dagster as dg
from dagster_postgres.utils import DagsterPostgresException
from sqlalchemy.exc import DBAPIError

from backfill_assets.core.errors import SettingsError, SourceError
from backfill_assets.resources.abandoned_runs import (
    every_unfinished_run,
    fail_abandoned_runs,
    unfinished_runs,
)
from backfill_assets.resources.cancelled_runs import STOPPED_TAG
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.dagster_processes import DagsterProcesses
from backfill_assets.resources.instance_storage import make_missing_tables
from backfill_assets.resources.known_stores import begin_store
from backfill_assets.resources.settings import (
    dagster_database_url,
    ensure_dagster_database,
    source_database_url,
)
from backfill_assets.stores.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backfill_assets.core.plan import Plan
    from backfill_assets.resources.project import Project
    from backfill_assets.resources.settings import Settings

LOOK_SECONDS = 2.0  # between two looks at the store and at the processes
TRIES = 5  # in a row; a server that is killed comes back in a second, unless it is killed again
# What it looks like when PostgreSQL was killed.
LOST = (PostgresError, SourceError, DBAPIError, DagsterPostgresException)
_HAVE_A_PROCESS = {dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED}

Result = TypeVar("Result")


class Up:
    """One running project: its database, Dagster's processes, and a look at the store."""

    def __init__(self, chosen: Settings, project: Project, say: Callable[[str], None]) -> None:
        self._settings = chosen
        self._project = project
        self._say = say
        self._stopped = threading.Event()
        self._is_away = False  # PostgreSQL, when it was looked at last

    def run(
        self, port: int, on_look: Callable[[list[Plan]], None], *, until_complete: bool
    ) -> bool:
        """Start everything, and look on until a signal or, if asked, until nothing is missing.

        Returns:
            Whether every expected partition is committed.

        Raises:
            SettingsError: the project is up already, or the port is taken.
        """
        with self._alone(), self._signals():
            processes = self._prepare(port)
            try:
                return self._look_on(processes, on_look, until_complete=until_complete)
            finally:
                self._say("Stopping …")
                try:
                    self._despite_kills(self._cancel_runs)
                except LOST as error:  # the next `up` finds what was not cancelled
                    self._say(f"PostgreSQL is away, so no run was cancelled ({_first_line(error)})")
                finally:
                    processes.stop()

    def _prepare(self, port: int) -> DagsterProcesses:
        begin_store(self._project.store, self._settings.store_root, self._settings.known_stores)
        self._say(f"Store       {self._settings.store_root}")
        where = "your server" if self._settings.database_url else "embedded"
        url = self._despite_kills(source_database_url)
        self._say(f"PostgreSQL  {where}, {_place_of(url)}")
        for data_set in self._project.data_sets:
            if data_set.load is not None:
                self._despite_kills(data_set.load)
                self._say(f"Source      {data_set.catalogue.name}, loaded")
        processes = DagsterProcesses(self._settings, port)
        processes.prepare()
        _refuse_taken(port)
        self._despite_kills(self._fail_what_was_killed)
        self._say(f"Dagster     http://127.0.0.1:{port} (a few seconds from now)")
        self._say(f"Logs        {processes.log_of('daemon').parent}")
        return processes

    def _fail_what_was_killed(self) -> None:
        """Fail runs that a killed `up` left behind: its code server, their parent, is gone."""
        dagster_database_url()
        with dg.DagsterInstance.from_config(str(self._settings.dagster_home)) as instance:
            failed = fail_abandoned_runs(
                instance,
                self._project,
                every_unfinished_run(instance),
                now=RealClock().now(),
                grace=timedelta(0),
            )
        if failed:
            self._say(f"Recovered   {len(failed)} runs that were killed; their work goes on")

    def _cancel_runs(self) -> None:
        """End what is being computed; what is committed stands, and the next `up` goes on."""
        with dg.DagsterInstance.from_config(str(self._settings.dagster_home)) as instance:
            for record in every_unfinished_run(instance):
                if record.dagster_run.status in _HAVE_A_PROCESS:
                    run_id = record.dagster_run.run_id
                    instance.add_run_tags(run_id, {STOPPED_TAG: "true"})
                    # The code server may be gone: then the next `up` finds the run abandoned.
                    with suppress(dg.DagsterError):
                        instance.run_launcher.terminate(run_id)

    def _look_on(
        self,
        processes: DagsterProcesses,
        on_look: Callable[[list[Plan]], None],
        *,
        until_complete: bool,
    ) -> bool:
        is_complete = False
        while not self._stopped.is_set():
            self._keep_dagsters_database()
            for name in processes.watch():
                self._say(f"{name} had died; it is started again, see {processes.log_of(name)}")
            plans = [self._project.plan(catalogue) for catalogue in self._project.catalogues]
            on_look(plans)
            is_complete = not any(plan.missing for plan in plans)
            if is_complete and until_complete and self._despite_kills(self._is_quiet):
                return True
            self._stopped.wait(LOOK_SECONDS)
        return is_complete

    def _keep_dagsters_database(self) -> None:
        """Make Dagster's database anew where it was thrown away; start a server that was killed.

        A server of somebody else's that is away is waited for: the files do not need it.
        """
        try:
            if self._despite_kills(_restore_dagsters_database):
                self._say("Dagster's database was gone; it is made anew, and told what stands")
        except LOST as error:
            if not self._settings.database_url:
                raise
            if not self._is_away:
                self._say(f"PostgreSQL is away, and is waited for ({_first_line(error)})")
            self._is_away = True
        else:
            self._is_away = False

    def _despite_kills(self, ask: Callable[[], Result]) -> Result:
        """Return what PostgreSQL says; where it is killed meanwhile, start it and ask again.

        A server of somebody else's is not asked again: we cannot start it.
        """
        for _ in range(0 if self._settings.database_url else TRIES - 1):
            try:
                return ask()
            except LOST as error:
                self._say(f"PostgreSQL was lost, and is asked again ({_first_line(error)})")
        return ask()

    def _is_quiet(self) -> bool:
        """Return whether no run is unfinished: the last one may still be reporting."""
        with dg.DagsterInstance.from_config(str(self._settings.dagster_home)) as instance:
            return not unfinished_runs(instance, self._project.catalogues)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the project's lock: two daemons on one project would only double the work."""
        path = self._settings.home / "up.lock"
        try:
            self._settings.home.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        except OSError as error:
            message = f"BACKFILL_HOME: {error}; name a folder that can be written"
            raise SettingsError(message) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{self._settings.home} is up already, in another terminal; stop it there"
            raise SettingsError(message) from None
        try:
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM end the look, so that everything is stopped in order."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, lambda *_: self._stopped.set()) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def _restore_dagsters_database() -> bool:
    """Make the database and its tables where they are not there; return whether they were not."""
    ensure_dagster_database()
    return make_missing_tables()


def _place_of(url: str) -> str:
    """Return where a database is: nothing of who logs in, and how."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] + parts.path


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            message = f"port {port}: {error.strerror}; give another one with --port"
            raise SettingsError(message) from error
