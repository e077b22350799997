"""Dagster's three processes and our servers, started, watched, restarted and stopped.

A code server, the webserver and the daemon, which share the code server: the code is loaded once.
The hotel partner comes up after them; the model server follows when models are trained.
Each has a session of its own, so that Ctrl-C in the terminal reaches them in our order only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

from backfill_assets.core.errors import SettingsError
from backfill_assets.resources.settings import PROJECT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.resources.settings import Settings

CODE_LOCATION = "backfill_assets.definitions"
STOP_SECONDS = 20  # a run's process gets this long to end by itself before it is killed
RESTART_SECONDS = 5  # between two restarts of a process that keeps dying
EARLY_SECONDS = 30  # one that fails sooner did not come up: the third time in a row is an error
EARLY_DEATHS = 3
TAIL_BYTES = 2_000  # of a log, in an error
SOCKET_PATH_BYTES = 103  # the longest path of a socket on macOS; Linux has room for four more
LOG_BYTES = 20_000_000  # a log that is longer begins anew at the next start
# The birth of a process is told by a clock that is corrected meanwhile, and rounded to a second. No
# pid is given to another process so soon.
BIRTH_TOLERANCE_SECONDS = 60
DEFAULT_HOME = ".backfill/"  # in the project's dagster.yaml


@dataclass(slots=True)
class _Child:
    """One process, and how it is started again."""

    name: str
    command: Sequence[str]
    waits_for: Path | None = None  # it is not started before this file is there
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0  # monotonic
    early_deaths: int = 0

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started_at


class DagsterProcesses:
    """Webserver, daemon, code server, model server and hotel partner of one project.

    Args:
        port: Where the webserver listens, on the loopback interface.

    Attributes:
        environment: What each process is started with.
    """

    def __init__(self, chosen: Settings, port: int) -> None:
        self.environment = (
            os.environ | chosen.handed_on() | {"DAGSTER_HOME": f"{chosen.dagster_home}"}
        )
        self._home = chosen.dagster_home
        self._logs = chosen.home / "logs"
        self._record = chosen.home / "processes.json"
        self._socket = _socket_of(self._home)
        self._children = [_Child(name, command) for name, command in self._commands(port).items()]
        ours = [sys.executable, "-m", "backfill_assets.cli"]
        self._children += [
            # Nobody needs these at once, and while Dagster starts it gets the machine. The model
            # server would have nothing to serve before models are trained.
            _Child("hotel-partner", [*ours, "serve-hotel-partner"], waits_for=self._socket),
            _Child(
                "model-server", [*ours, "serve-models"], waits_for=chosen.models / "current.json"
            ),
        ]

    def prepare(self) -> None:
        """Write what Dagster reads at its start, and end what a killed `up` left running."""
        self._home.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        self._end_leftovers()
        self._socket.unlink(missing_ok=True)
        # The file speaks of the default home; `dagster dev` reads it as it stands.
        instance = yaml.safe_load((PROJECT / "dagster.yaml").read_text())
        _write_yaml(self._home / "dagster.yaml", _moved(instance, self._home.parent))
        location = {"socket": str(self._socket), "location_name": CODE_LOCATION}
        workspace = {"load_from": [{"grpc_server": location}]}
        _write_yaml(self._home / "workspace.yaml", workspace)

    def watch(self) -> list[str]:
        """Start what does not run; return the names of those that had died.

        Raises:
            SettingsError: one of them does not come up; the message ends with what it said.
        """
        died = []
        for child in self._children:
            if child.process is None:
                if child.waits_for is None or child.waits_for.exists():
                    self._start(child)
            elif child.process.poll() is not None and child.age > RESTART_SECONDS:
                self._note_death(child)
                died.append(child.name)
                self._start(child)
        return died

    def stop(self) -> None:
        """End all, the daemon first, so that nothing is launched while the others end."""
        processes = [c.process for c in reversed(self._children) if c.process is not None]
        _end([psutil.Process(p.pid) for p in processes if p.poll() is None])
        self._record.unlink(missing_ok=True)
        self._socket.unlink(missing_ok=True)
        if self._socket.parent != self._home:
            self._socket.parent.rmdir()

    def log_of(self, name: str) -> Path:
        """Return the file that a process writes to."""
        return self._logs / f"{name}.log"

    def _commands(self, port: int) -> dict[str, list[str]]:
        workspace = str(self._home / "workspace.yaml")
        address = ["--host", "127.0.0.1", "--port", str(port)]
        dagster = [sys.executable, "-m", "dagster"]
        quiet = ["--log-level", "warning"]
        return {
            "code-server": [
                # Not `code-server start`: when the child in which that loads the code is killed, it
                # stays up, answers nothing and starts no other one.
                *dagster, "api", "grpc", "--socket", str(self._socket),
                "-m", CODE_LOCATION, *quiet,
            ],
            "webserver": [
                sys.executable, "-m", "dagster_webserver", "-w", workspace, *address, *quiet,
            ],
            "daemon": [sys.executable, "-m", "dagster._daemon", "run", "-w", workspace],
        }  # fmt: skip

    def _start(self, child: _Child) -> None:
        log = self.log_of(child.name)
        is_long = log.exists() and log.stat().st_size > LOG_BYTES
        with log.open("wb" if is_long else "ab") as output:
            child.process = subprocess.Popen(  # noqa: S603 - our own command line
                child.command,
                cwd=PROJECT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        child.started_at = time.monotonic()
        self._remember()

    def _note_death(self, child: _Child) -> None:
        if child.age >= EARLY_SECONDS:
            child.early_deaths = 0
        elif child.process is not None and child.process.returncode > 0:
            child.early_deaths += 1  # below 0 is a signal: it did not fail, it was killed
        if child.early_deaths == EARLY_DEATHS:
            log = self.log_of(child.name)
            tail = log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
            message = f"{child.name} does not come up; the end of {log}:\n{tail}"
            raise SettingsError(message)

    def _remember(self) -> None:
        """Keep which processes are ours: pid and birth, since a pid alone may be another's soon."""
        born = {}
        for child in self._children:
            if child.process is not None and child.process.poll() is None:
                born[child.process.pid] = psutil.Process(child.process.pid).create_time()
        draft = self._record.with_suffix(".new")
        draft.write_text(json.dumps(born))
        draft.replace(self._record)

    def _end_leftovers(self) -> None:
        if not self._record.exists():
            return
        try:
            born = json.loads(self._record.read_text())
        except ValueError as error:
            message = f"{self._record} is damaged ({error}); remove it"
            raise SettingsError(message) from error
        leftovers = []
        for pid, created in born.items():
            try:
                process = psutil.Process(int(pid))
                if abs(process.create_time() - created) < BIRTH_TOLERANCE_SECONDS:
                    leftovers.append(process)
            except psutil.NoSuchProcess:
                continue
        _end(leftovers)


def _moved(config: Any, home: Path) -> Any:
    """Return a configuration whose folders in the default home are in ``home``."""
    if isinstance(config, dict):
        return {name: _moved(value, home) for name, value in config.items()}
    if isinstance(config, str) and config.startswith(DEFAULT_HOME):
        return str(home / config.removeprefix(DEFAULT_HOME))
    return config


def _write_yaml(path: Path, config: Any) -> None:
    path.write_text(yaml.safe_dump(config, sort_keys=False))


def _socket_of(home: Path) -> Path:
    """Return where the code server listens: in Dagster's home, unless that is too deep for it."""
    socket = home / "code.sock"
    if len(os.fsencode(socket)) <= SOCKET_PATH_BYTES:
        return socket
    return Path(tempfile.mkdtemp(prefix="backfill-")) / socket.name


def _end(processes: list[psutil.Process]) -> None:
    """Ask processes to end, wait for them and all that they started, and kill what stays."""
    family = list(processes)
    for process in processes:
        try:
            # Before it is asked: nobody knows the children of one that has ended.
            family += process.children(recursive=True)
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=STOP_SECONDS)
