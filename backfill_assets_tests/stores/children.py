"""Real processes that a test may kill, stop, confine, or run as nobody.

A child is a fork of the test, so it needs no import of its own and takes milliseconds. What it
returns or raises comes back through a pipe.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Arrow imports it with its first array: once here, and not in every child.
import pandas  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LONGEST_SECONDS = 60  # a child that hangs is a failure, not a test without end
_NOBODY = 65534
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_REC_PRIVATE = 0x4000 | 0x40000


class Child:
    """A running child."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._pipe, answer_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.alarm(_LONGEST_SECONDS)
            os.close(self._pipe)
            _answer(act, answer_end)
        os.close(answer_end)
        self._is_running = True

    def wait_until_stopped(self) -> None:
        """Wait until the child has stopped itself."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the child ended without stopping: {status}"

    def stops(self) -> bool:
        """Wait until the child has stopped itself or has ended; return whether it stopped."""
        info = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert info is not None
        return info.si_code == os.CLD_STOPPED

    def stop(self) -> None:
        """Stop the child as SIGSTOP does."""
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_until_stopped()

    def go_on(self) -> None:
        """Let a stopped child go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the child at once."""
        os.kill(self.pid, signal.SIGKILL)
        self.exit_code()

    def exit_code(self) -> int:
        """Wait for the end; negative is the signal that ended it."""
        _, status = os.waitpid(self.pid, 0)
        self._is_running = False
        return os.waitstatus_to_exitcode(status)

    def answer(self) -> Any:
        """Wait for the end; return what the child returned, or raise what it raised."""
        with os.fdopen(self._pipe, "rb", closefd=False) as file:
            content = file.read()
        code = self.exit_code()
        assert code == 0, f"the child ended with {code}"
        is_error, value = pickle.loads(content)  # noqa: S301 - our own child wrote it
        if is_error:
            raise value
        return value

    def close(self) -> None:
        """End the child if it still runs."""
        os.close(self._pipe)
        if self._is_running:
            self.kill()


@contextmanager
def child(act: Callable[[], object]) -> Iterator[Child]:
    """Run a function in another process; it is dead at the end of the block."""
    running = Child(act)
    try:
        yield running
    finally:
        running.close()


def in_child(act: Callable[[], object]) -> Any:
    """Return what a function returns in another process, or raise what it raises there."""
    with child(act) as running:
        return running.answer()


def as_nobody(act: Callable[[], object]) -> Any:
    """Run a function in a process without a superuser's rights."""

    def confined() -> object:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
        return act()

    return in_child(confined)


def with_own_mounts(act: Callable[[], object]) -> Any:
    """Run a function in a process whose mounts nobody else sees and which end with it."""

    def confined() -> object:
        _enter_own_mounts()
        return act()

    return in_child(confined)


def mount_tmpfs(folder: Path, options: str) -> None:
    """Mount an empty file system at a folder; only ``with_own_mounts``."""
    _call("mount", b"tmpfs", bytes(folder), b"tmpfs", 0, options.encode())


def unmount(folder: Path) -> None:
    """Take away what ``mount_tmpfs`` put there."""
    _call("umount", bytes(folder))


class Gate:
    """Where children wait until all may go at once."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def wait(self) -> None:
        """Wait in a child until the gate opens."""
        os.close(self._write)
        os.read(self._read, 1)

    def open(self) -> None:
        """Let all children go."""
        os.close(self._write)
        os.close(self._read)


def own_mounts_work() -> bool:
    """Return whether this system lets an ordinary process have mounts of its own."""
    try:
        in_child(_enter_own_mounts)
    except (OSError, AttributeError):
        return False
    return True


def _answer(act: Callable[[], object], pipe: int) -> None:
    try:
        try:
            content = pickle.dumps((False, act()))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent raises it
            content = pickle.dumps((True, error))
        with os.fdopen(pipe, "wb") as file:
            file.write(content)
    finally:
        os._exit(0)


def _enter_own_mounts() -> None:
    user, group = os.getuid(), os.getgid()
    _call("unshare", _CLONE_NEWNS if user == 0 else _CLONE_NEWNS | _CLONE_NEWUSER)
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _call("mount", b"none", b"/", None, _MS_REC_PRIVATE, None)


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
