"""Which processes are ours. None is signalled, and no lock file removed, on a number alone."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.keeper import looking_as_user_of

READY = "ready"
STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class PidFile:
    """What `postmaster.pid` says. It may outlive its server, and its pid may be anyone's by now.

    Attributes:
        pid: The server's process when it was written.
        port: Its TCP port; None while that is not written yet.
        status: ``starting``, ``ready``, ``stopping``; empty while that is not written yet.
        text: The whole file; it changes when the server restarts itself after a crash.

    Source: https://www.postgresql.org/docs/current/storage-file-layout.html and
    ``src/include/utils/pidfile.h``, which numbers the lines.
    """

    pid: int
    port: int | None
    status: str
    text: str


def read_pid_file(folder: ServerFolder) -> PidFile | None:
    """Return what the file says; None where there is none, or nothing in it yet."""
    try:
        text = folder.postmaster_pid.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    lines = [line.strip() for line in text.splitlines()] + [""] * 8
    # A negative pid is how a single-user server marks its file.
    if not lines[0].lstrip("-").isdigit():
        return None
    port = int(lines[3]) if lines[3].isdigit() else None
    return PidFile(pid=abs(int(lines[0])), port=port, status=lines[7], text=text)


def is_server_process(pid: int, data: Path) -> bool:
    """Return whether the process is a living PostgreSQL that works in ``data``."""
    try:
        process = psutil.Process(pid)
        with looking_as_user_of(pid):
            program, folder = process.exe(), process.cwd()
    except (psutil.Error, OSError):
        # Gone, a zombie, or another user's: the server is of our user, or we are root.
        return False
    # Not "==": a program replaced by an upgrade shows as "postgres (deleted)".
    return Path(program).name.startswith("postgres") and _is_same_folder(Path(folder), data)


def is_alive(process: psutil.Process) -> bool:
    """Return whether the very process runs; a zombie, which nobody reaps, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def server_processes(data: Path) -> Iterator[int]:
    """Yield every living PostgreSQL process that works in ``data``."""
    for process in psutil.process_iter():
        if is_server_process(process.pid, data):
            yield process.pid


def remove_misleading_pid_file(folder: ServerFolder) -> None:
    """Remove `postmaster.pid` where its number is a living stranger's, which stops PostgreSQL.

    A dead number is left to PostgreSQL, which knows what to do. Call only while holding the
    server's lock, so that none is starting.
    """
    pid_file = read_pid_file(folder)
    if pid_file is None or not psutil.pid_exists(pid_file.pid):
        return
    if next(server_processes(folder.data), None) is None:
        folder.postmaster_pid.unlink(missing_ok=True)


def stop_fast(pid: int) -> None:
    """Tell a server, known to be ours, to stop now: it ends its connections and loses nothing."""
    try:
        os.kill(pid, signal.SIGINT)
    except ProcessLookupError:
        return  # gone between the look and the signal


def end_orphans(data: Path) -> None:
    """Tell processes whose server was killed to quit at once; committed data is in the log.

    Most notice by themselves; one in the middle of a long computation does not.
    """
    for pid in server_processes(data):
        try:
            os.kill(pid, signal.SIGQUIT)
        except ProcessLookupError:
            continue


def _is_same_folder(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them was deleted
        return False
