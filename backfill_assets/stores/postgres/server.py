"""Starting a server on a cluster that stands, and waiting until it takes connections."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from backfill_assets.stores.postgres.errors import ServerStartError
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.processes import (
    READY,
    STOPPING,
    PidFile,
    is_alive,
    is_server_process,
    read_pid_file,
    stop_fast,
)
from backfill_assets.stores.postgres.settings import server_arguments
from backfill_assets.stores.postgres.setup import ServerSetup

START_TIMEOUT_SECONDS = 120  # 0.1 s, and up to a minute to replay 256 MB of log on a slow disk
POLITE_STOP_SECONDS = 1  # a server without clients is down by then
POLL_SECONDS = 0.01
LAUNCH_TIMEOUT_SECONDS = 20  # milliseconds, unless the disk is cold
LOG_TAIL_LINES = 20
PORT_TAKEN = "could not bind"  # messages are in English: the server runs with LC_ALL=C

# Two steps, so that the server is no child of ours: one that dies is reaped by init and leaves
# no zombie, which PostgreSQL would take for a living owner of its lock file.
LAUNCH_SCRIPT = '"$@" </dev/null >&2 & echo $!'


def start_server(setup: ServerSetup, *, lock: int, ports: Iterator[int]) -> PidFile:
    """Start the server at the first of ``ports`` that it gets, and wait until it is ready.

    A crash of this process leaves a server that is starting; it holds ``lock``, and its keeper
    stops it if nobody comes.

    Raises:
        ServerStartError: it ended, or was not ready in time.
    """
    folder, account = setup.folder, setup.account
    for port in ports:
        log_start = folder.log.stat().st_size if folder.log.exists() else 0
        process = _launch(setup, port=port, lock=lock)
        pid_file = _wait_for_launched(folder, process)
        if pid_file is not None:
            return pid_file
        said = _log_since(folder.log, log_start)
        if PORT_TAKEN not in said:
            message = f"{folder.data}: PostgreSQL ended while starting, as {account.description}"
            raise ServerStartError(with_log(message, folder, said))
    message = f"{folder.data}: every port that was free was taken before PostgreSQL had it"
    raise ServerStartError(with_log(message, folder))


def running_server(folder: ServerFolder) -> PidFile | None:
    """Return the server that runs in the folder, waiting while it starts or stops; None if none.

    Raises:
        ServerStartError: it neither became ready nor ended in time.
    """
    begun = time.monotonic()
    while True:
        pid_file = read_pid_file(folder)
        waited = time.monotonic() - begun
        if pid_file is None or not is_server_process(pid_file.pid, folder.data):
            return None
        if pid_file.status == READY:
            return pid_file
        if pid_file.status == STOPPING and waited > POLITE_STOP_SECONDS:
            # Someone asked it to wait until its clients go, and they may stay for ever.
            stop_fast(pid_file.pid)
        if waited > START_TIMEOUT_SECONDS:
            what = "stop" if pid_file.status == STOPPING else "start"
            message = (
                f"{folder.data}: PostgreSQL (pid {pid_file.pid}) did not {what} within "
                f"{START_TIMEOUT_SECONDS} s"
            )
            raise ServerStartError(with_log(message, folder))
        time.sleep(POLL_SECONDS)


def with_log(message: str, folder: ServerFolder, said: str | None = None) -> str:
    """Return the message followed by the last lines of the server's log."""
    said = _log_since(folder.log, 0) if said is None else said
    tail = "\n".join(said.splitlines()[-LOG_TAIL_LINES:]) or "(nothing)"
    return f"{message}; {folder.log} ends with:\n{tail}"


def _launch(setup: ServerSetup, *, port: int, lock: int) -> psutil.Process | None:
    server = [str(setup.programs.postgres), "-D", str(setup.folder.data)]
    command = ["/bin/sh", "-c", LAUNCH_SCRIPT, "sh", *server]
    command += server_arguments(port=port, durable=setup.durable)
    with setup.folder.open_log() as log:
        launcher = setup.account.start(command, stdout=subprocess.PIPE, stderr=log, pass_fds=[lock])
    with launcher:
        said, _ = launcher.communicate(timeout=LAUNCH_TIMEOUT_SECONDS)
    try:
        return psutil.Process(int(said))
    except psutil.NoSuchProcess:  # it ended already
        return None


def _wait_for_launched(folder: ServerFolder, process: psutil.Process | None) -> PidFile | None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while process is not None and is_alive(process):
        pid_file = read_pid_file(folder)
        if pid_file is not None and pid_file.pid == process.pid and pid_file.status == READY:
            return pid_file
        if time.monotonic() > deadline:
            message = f"{folder.data}: PostgreSQL was not ready after {START_TIMEOUT_SECONDS} s"
            raise ServerStartError(with_log(message, folder))
        time.sleep(POLL_SECONDS)
    return None


def _log_since(log: Path, start: int) -> str:
    try:
        return log.read_bytes()[start:].decode(errors="replace")
    except FileNotFoundError:
        return ""
