"""Real processes that use a server, waiting for what they do, and ending what is left."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from backfill_assets.stores.postgres import membership
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.locks import is_held
from backfill_assets.stores.postgres.processes import is_server_process, read_pid_file

PROJECT = Path(membership.__file__).parents[3]

USER = """
import sys
from pathlib import Path
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
print(server.url("postgres"), flush=True)
sys.stdin.read()
"""

LONG_COMPUTATION = b"""
SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b
"""

FORKING_USER = USER.replace("sys.stdin", "import os; os.fork() or os.setsid()\nsys.stdin")


def wait_until(condition: Callable[[], object], *, seconds: float = 20) -> None:
    """Return once the condition holds; fail after a while."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        threading.Event().wait(0.01)


@contextmanager
def user_process(
    folder: Path,
    *,
    script: str = USER,
    command: tuple[str, ...] = (sys.executable,),
    packages: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Start a process that uses the server until its input ends; a session of its own."""
    path = python_path(packages)
    process = subprocess.Popen(
        [*command, "-c", script, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def python_path(packages: Path | None = None) -> str:
    """Return where a Python finds the project, and its dependencies too if they are given."""
    parts = [PROJECT, packages, os.environ.get("PYTHONPATH")]
    return os.pathsep.join(str(part) for part in parts if part)


def is_quiet(folder: Path) -> bool:
    """Return whether neither the server nor its keeper runs."""
    names = ServerFolder(folder)
    return not any(map(is_held, (names.server_lock, names.keeper_lock, names.users_lock)))


def url_from(process: subprocess.Popen[str]) -> str:
    """Return the URL that the process says once the server runs."""
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url.startswith("postgresql://"), url
    return url


def postmaster(folder: Path) -> int | None:
    """Return the pid of the server that runs in the folder, if one does."""
    pid_file = read_pid_file(ServerFolder(folder))
    if pid_file is None or not is_server_process(pid_file.pid, folder / "data"):
        return None
    return pid_file.pid


def running_postmaster(folder: Path) -> int:
    """Return the pid of the server, which must run."""
    pid = postmaster(folder)
    assert pid is not None
    return pid


def keepers(folder: Path) -> list[int]:
    """Return the pids of the folder's keepers."""
    return [pid for pid, line in _command_lines() if "keeper.py" in line and str(folder) in line]


def server_processes(folder: Path) -> list[int]:
    """Return the pids of PostgreSQL's processes in the folder."""
    pids = psutil.pids()
    return [pid for pid in pids if is_server_process(pid, folder / "data")]


def kill(*pids: int) -> None:
    """Kill the processes at once, as `kill -9` does, and wait until they are gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def is_running(pid: int) -> bool:
    """Return whether the process runs; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end_all(folder: Path) -> None:
    """Kill what still works for the folder: its keeper first, which would start nothing anyway."""
    kill(*keepers(folder))
    kill(*server_processes(folder))
    wait_until(lambda: not server_processes(folder))


def _command_lines() -> Iterator[tuple[int, str]]:
    for process in psutil.process_iter(["cmdline"]):
        yield process.pid, " ".join(process.info["cmdline"] or ())
