"""The product as a newcomer runs it: ``backfill-assets up``, its processes, and killing them.

Processes are found by the home that they were given and by nothing else, so that those of other
people, and of other tests, are left alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.resources.event_log import materialized_partitions
from backfill_assets.resources.instance_storage import close_connections
from backfill_assets.resources.run_requests import SENSOR_TAG, asset_key
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.postgres.cluster import ROLE
from backfill_assets.stores.postgres.databases import Databases
from backfill_assets.stores.postgres.embedded import BASE_DATABASE
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.ports import HOST, free_port
from backfill_assets.stores.postgres.processes import is_server_process, read_pid_file
from backfill_assets_tests.recovery.waiting import wait_for
from backfill_assets_tests.resources import instances

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import dagster as dg

ERROR, NO = 1, 3  # exit codes; see cli
COMMAND = (sys.executable, "-m", "backfill_assets.cli")
# Eleven days are closed: 1 to 4 January with two airports, 5 to 11 January with three, and three
# categories of four value types; the fourth category begins in March.
SMALL_CLOCK = "2013-01-12T12:00:00-05:00"
SMALL_PARTITIONS = 348
ENDED_SECONDS = 30  # until a killed process is gone, on a busy machine
UP_SECONDS = 120  # until Dagster answers, on a busy machine
STOP_SECONDS = 90


class Role(StrEnum):
    """What a process of a running project is there for."""

    UP = "up"
    WEBSERVER = "webserver"
    DAEMON = "daemon"
    CODE_SERVER = "code server"
    RUN = "run"
    POSTMASTER = "postmaster"
    BACKEND = "backend"
    POSTGRES = "other PostgreSQL"
    KEEPER = "keeper"
    MODEL_SERVER = "model server"
    HOTEL_PARTNER = "hotel partner"
    OTHER = "other"


MARKS = {  # what the command line of a process has in it
    "backfill_assets.cli up": Role.UP,
    "backfill_assets.cli serve-models": Role.MODEL_SERVER,
    "backfill_assets.cli serve-hotel-partner": Role.HOTEL_PARTNER,
    "dagster_webserver": Role.WEBSERVER,
    "dagster._daemon": Role.DAEMON,
    "dagster code-server start": Role.CODE_SERVER,
    "dagster api grpc": Role.CODE_SERVER,
    "multiprocessing.spawn": Role.RUN,
}


@dataclass(slots=True, kw_only=True)
class Product:
    """One home, and the `up` that a test started on it.

    Attributes:
        settings: More variables of the environment.
    """

    home: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every command: no setting of the person who runs the tests."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("BACKFILL_", "DAGSTER"))}
        given = {"BACKFILL_HOME": str(self.home), "BACKFILL_ENV_FILE": "", **self.settings}
        return own | given | {"COLUMNS": "200"}

    @property
    def store(self) -> LocalPartitionStore:
        """The product's store, seen from here."""
        protocol = self.settings.get("BACKFILL_COMMIT_PROTOCOL", "link")
        return LocalPartitionStore(self.home / "store", [FLIGHTS], commit_protocol=protocol)

    @property
    def output(self) -> str:
        """What every `up` on this home has said."""
        path = self.home / "up.txt"
        return path.read_text() if path.exists() else ""

    def up(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `up`, as a terminal would: in a process group of its own."""
        if self.process is not None:
            self.process.wait(ENDED_SECONDS)
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "up.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [*COMMAND, "up", "--port", str(self.port), *arguments],
                cwd="/",
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command of the product to its end."""
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd="/",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=UP_SECONDS,
            check=False,
        )

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask `up` to stop, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.exit_code(seconds=STOP_SECONDS)

    def exit_code(self, *, seconds: float) -> int:
        """Wait until `up` ends by itself."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            message = f"`up` has not ended in {seconds:g} s; it said:\n{self.output}"
            raise AssertionError(message) from None

    def is_complete(self) -> bool:
        """Return whether the small year is complete; fail if `up` has ended by itself."""
        assert self.is_up(), f"`up` ended by itself:\n{self.output}"
        return len(self.committed()) == SMALL_PARTITIONS

    def is_gone(self) -> bool:
        """Return whether no process of this home is left."""
        return not self.processes()

    def is_up(self) -> bool:
        """Return whether the `up` that was started last still runs."""
        return self.process is not None and self.process.poll() is None

    def committed(self) -> set[str]:
        """Return ``category/value type/day|unit`` of each committed partition."""
        if not self.store.exists():
            return set()
        inventory = self.store.scan(FLIGHTS)
        return {f"{p.query.category}/{p.query.value_type}/{p.key}" for p in inventory.committed}

    def answers(self) -> bool:
        """Return whether the webserver has loaded the code location."""
        document = self.ask("{workspaceOrError{...on Workspace{locationEntries{loadStatus}}}}")
        entries = document.get("workspaceOrError", {}).get("locationEntries", [])
        return [entry["loadStatus"] for entry in entries] == ["LOADED"]

    def ask(self, query: str) -> Any:
        """Return the webserver's answer to a GraphQL query; empty while it does not answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            data=json.dumps({"query": query}).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own webserver
                return json.load(answer)["data"] or {}
        except urllib.error.HTTPError as error:
            error.close()
            return {}
        except OSError:
            return {}

    def wait_until_it_answers(self) -> None:
        wait_for(f"Dagster's answer; {self.home}/logs", self.answers, seconds=UP_SECONDS)

    def processes(self) -> dict[Role, list[psutil.Process]]:
        """Return every living process of this home, by what it is there for."""
        found: dict[Role, list[psutil.Process]] = defaultdict(list)
        for process in psutil.process_iter():
            if (role := self._role(process)) is not None:
                found[role].append(process)
        return found

    def end(self) -> None:
        """Kill whatever is left of this home, and wait until it is gone."""
        wait_for("the end of all processes", self._kill_all, seconds=ENDED_SECONDS)
        if self.process is not None:
            self.process.wait()

    def logs(self) -> str:
        """Return the end of every log, for a failure's message."""
        paths = [*sorted((self.home / "logs").glob("*.log")), self.home / "postgres/server.log"]
        texts = [f"--- {p}\n{p.read_text(errors='replace')[-3000:]}" for p in paths if p.exists()]
        return "\n".join([f"--- up\n{self.output[-3000:]}", *texts])

    @contextmanager
    def dagster(self) -> Iterator[dg.DagsterInstance]:
        """Yield Dagster's own memory of runs and events. The server must run; we never start it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(instances.URL_VARIABLE, self._url(self._databases().dagster))
            with instances.open_instance(self.home / "seen-from-a-test") as instance:
                yield instance
            close_connections()

    def materialized(self) -> set[str]:
        """Return what Dagster shows as materialized, named as by `committed`."""
        with self.dagster() as instance:
            return {
                f"{query.category}/{query.value_type}/{key}"
                for query in FLIGHTS.queries
                for key in materialized_partitions(instance, asset_key(query))
            }

    def runs(self) -> list[dg.DagsterRun]:
        """Return the runs that the sensor launched for partitions, newest first."""
        with self.dagster() as instance:
            return [run for run in instance.get_runs() if SENSOR_TAG in run.tags]

    def log_url(self) -> str:
        """Return the address of the project's own database. The server must run."""
        return self._url(self._databases().log)

    def _databases(self) -> Databases:
        return Databases.named_after(BASE_DATABASE)

    def _url(self, database: str) -> str:
        folder = ServerFolder(self.home / "postgres")
        pid_file = read_pid_file(folder)
        assert pid_file is not None, "no server runs"
        assert pid_file.port is not None, "the server is just starting"
        address = f"{HOST}:{pid_file.port}/{database}"
        return f"postgresql://{ROLE}:{folder.password.read_text()}@{address}"

    def _kill_all(self) -> bool:
        """Kill all; return whether none was left."""
        found = self.processes()
        everyone = [p for processes in found.values() for p in processes]
        kill(*everyone)
        return not everyone

    def _role(self, process: psutil.Process) -> Role | None:
        folder = ServerFolder(self.home / "postgres")
        try:
            line = " ".join(process.cmdline())
            if is_server_process(process.pid, folder.data):
                return _role_in_postgres(process.pid, line, folder)
            if "keeper.py" in line and str(folder.path) in line:
                return Role.KEEPER
            if process.environ().get("BACKFILL_HOME") != str(self.home):
                return None
            return next((role for mark, role in MARKS.items() if mark in line), Role.OTHER)
        except (psutil.Error, OSError):
            return None


def _role_in_postgres(pid: int, line: str, folder: ServerFolder) -> Role:
    pid_file = read_pid_file(folder)
    if pid_file is not None and pid_file.pid == pid:
        return Role.POSTMASTER
    return Role.BACKEND if "127.0.0.1(" in line else Role.POSTGRES


def kill(*processes: psutil.Process) -> None:
    """Kill the processes at once, as `kill -9` does, and wait until they are gone."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=ENDED_SECONDS)
