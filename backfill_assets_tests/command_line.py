"""The command line as a terminal has it, within the process of a test."""

from __future__ import annotations

import pwd
import sys
from typing import TYPE_CHECKING, NamedTuple

from backfill_assets import cli

if TYPE_CHECKING:
    import pytest


class Said(NamedTuple):
    """What a command came to: its exit code, and what it said where."""

    code: int
    out: str
    err: str


def run_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> Said:
    """Run ``backfill-assets`` with arguments, in a terminal that is wide enough for its tables."""
    monkeypatch.setattr(sys, "argv", ["backfill-assets", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    capsys.readouterr()
    code = _exit_code()
    return Said(code, *capsys.readouterr())


def be_nobody_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a user without a name, as a container with an arbitrary uid has it."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)


def _exit_code() -> int:
    """Run the command line, and return what the shell would see."""
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
