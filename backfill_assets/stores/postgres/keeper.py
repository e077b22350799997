"""The keeper of an embedded server: it stops the server when the last user is gone.

A process of its own, which no terminal reaches. It waits for the lock that every user shares; to
get it means that nobody is left, however they ended. It imports the standard library only, so
that it starts in milliseconds, stays small, and needs no file of the project once it runs.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

READY = b"ready\n"
LOCK_SECONDS = 0.5  # those who look whether there is a keeper hold its lock for microseconds
POLL_SECONDS = 0.02
REPEAT_SECONDS = 1.0  # a server that is just starting may miss a signal
FAST_STOP_SECONDS = 60.0  # a fast shutdown writes all that is dirty
GIVE_UP_SECONDS = 75.0
LOG_CHECK_SECONDS = 30.0
MAX_LOG_BYTES = 8 * 1024 * 1024  # two files of it: days of errors, and no disk is filled


def main(folder: Path) -> None:
    """Detach, say that the server has a keeper, and keep it until its last user is gone."""
    if os.fork():
        os._exit(0)
    os.chdir("/")
    keeper_lock = _open(folder / "keeper.lock")
    if keeper_lock is not None and _is_only_keeper(keeper_lock):
        _say_ready()
        signal.signal(signal.SIGALRM, lambda *_: bound_log(folder / "server.log"))
        signal.setitimer(signal.ITIMER_REAL, LOG_CHECK_SECONDS, LOG_CHECK_SECONDS)
        _keep(folder, keeper_lock)


def _keep(folder: Path, keeper_lock: int) -> None:
    # Opened after the keeper's lock: a new user, who waits for this one, finds that one free.
    while (users_lock := _open(folder / "users.lock")) is not None:
        fcntl.flock(users_lock, fcntl.LOCK_EX)
        if not _is_current(keeper_lock, folder / "keeper.lock"):
            return  # the folder was deleted; what stands there now has a keeper of its own
        if _is_current(users_lock, folder / "users.lock"):
            signal.setitimer(signal.ITIMER_REAL, 0)
            stop_server(folder)
            os.close(keeper_lock)
            return
        os.close(users_lock)


def stop_server(folder: Path) -> None:
    """Stop the server, also one that is just starting. Touches no process but a verified one."""
    begun = time.monotonic()
    next_signal = 0.0
    while (waited := time.monotonic() - begun) < GIVE_UP_SECONDS:
        pid = _server_pid(folder / "data")
        if pid is None and not _is_held(folder / "server.lock"):
            return
        if pid is not None and waited >= next_signal:
            # Fast; then immediate, which loses nothing but costs a recovery.
            number = signal.SIGINT if waited < FAST_STOP_SECONDS else signal.SIGQUIT
            _signal(pid, number)
            next_signal = waited + REPEAT_SECONDS
        time.sleep(POLL_SECONDS)


def _server_pid(data: Path) -> int | None:
    try:
        pid = int((data / "postmaster.pid").read_bytes().split(b"\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if pid > 0 and _is_server_process(pid, data) else None


def _is_server_process(pid: int, data: Path) -> bool:
    process = Path("/proc") / str(pid)
    try:
        if not Path("/proc/self").exists():
            return _is_server_by_ps(pid, data)
        with looking_as_user_of(pid):
            program, folder = (process / "exe").readlink(), (process / "cwd").readlink()
        return program.name.startswith("postgres") and folder.samefile(data)
    except OSError:
        return False


@contextlib.contextmanager
def looking_as_user_of(pid: int) -> Iterator[None]:
    """Let root look at another user's process as that user, in this thread alone.

    As root it needs CAP_SYS_PTRACE for that, which containers take away. Does nothing for others.

    Raises:
        OSError: there is no such process.

    Source: ptrace(2), "Ptrace access mode checking", and setfsuid(2).
    """
    if os.geteuid() != 0 or sys.platform != "linux":
        yield
        return
    # Not at the top: a Python may have been built without it, and others never come here.
    import ctypes  # noqa: PLC0415

    owner, libc = (Path("/proc") / str(pid)).stat(), ctypes.CDLL(None)
    libc.setfsgid(owner.st_gid)
    libc.setfsuid(owner.st_uid)
    try:
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())


def _is_server_by_ps(pid: int, data: Path) -> bool:
    # Where there is no /proc, as on macOS; our servers carry "-D <data>" in their command line.
    ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    done = subprocess.run(ps, capture_output=True, text=True, check=False)  # noqa: S603
    program, _, arguments = done.stdout.strip().partition(" -D ")
    return Path(program).name == "postgres" and arguments.startswith(f"{data} ")


def _is_only_keeper(keeper_lock: int) -> bool:
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(keeper_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(POLL_SECONDS)
        else:
            return True
    return False


def _is_held(lock: Path) -> bool:
    if (descriptor := _open(lock)) is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _open(lock: Path) -> int | None:
    try:
        return os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _say_ready() -> None:
    # Who started us may be killed by now; the next user counts on us all the same.
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), READY)
    # Whoever reads us sees the end of it.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # gone between the look and the signal


def bound_log(log: Path) -> None:
    """Move the log aside once it is large; the server goes on writing to the same, emptied file.

    Lines written between the copy and the emptying are lost, which a log may.
    """
    try:
        if log.stat().st_size > MAX_LOG_BYTES:
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)
    except OSError as error:
        sys.stderr.write(f"{log}: could not be shortened: {error}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
