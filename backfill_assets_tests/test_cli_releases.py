"""``backfill-assets retract`` and ``reconcile``: what a person does to released days."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from backfill_assets.cli import releases as commands
from backfill_assets_tests.command_line import Said, be_nobody_known, run_command
from backfill_assets_tests.resources.release_fixtures import world
from backfill_assets_tests.resources.release_world import KEY, World
from backfill_assets_tests.resources.small_project import DAY_1

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["world"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a store may be."""
    return tmp_path / "store"


@pytest.fixture
def run(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Said]:
    """``run("retract", …)`` as in a terminal: its exit code, and what it said."""
    releasing = world.releasing()
    monkeypatch.setattr(commands, "project", lambda: world.project)
    monkeypatch.setattr(commands, "releasing_of", lambda _project: releasing)

    def command(*arguments: str) -> Said:
        return run_command(monkeypatch, capsys, *arguments)

    return command


def test_a_day_is_retracted_and_a_second_time_refused_in_a_sentence(
    world: World,
    run: Callable[..., Said],
) -> None:
    world.fill(DAY_1)
    world.releasing().release(KEY, who="ada")
    command = ("retract", "shops", "2024-03-01", "--reason", "the till was wrong")

    assert run(*command) == (0, "release_day/shops/2024-03-01 is COMPENSATED\n", "")
    assert (world.rows(), world.held()) == ([], 4)

    code, out, err = run(*command)
    assert (code, out) == (1, "")
    assert err.startswith("ReleaseError: shops 2024-03-01 is not released")
    assert run("retract", "shops", "1 March", "--reason", "x")[0] == 1


def test_a_user_without_a_name_says_who_retracts(
    world: World, run: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill(DAY_1)
    world.releasing().release(KEY, who="ada")
    be_nobody_known(monkeypatch)
    command = ("retract", "shops", "2024-03-01", "--reason", "the till was wrong")
    code, out, err = run(*command)
    assert (code, out) == (1, "")
    assert err.startswith("SettingsError: --who: this machine does not know your login")
    assert run(*command, "--who", "ada").code == 0


def test_what_differs_is_told_with_a_no_and_mended_when_asked_for(
    world: World,
    run: Callable[..., Said],
) -> None:
    world.fill(DAY_1)
    world.releasing().release(KEY, who="ada")
    assert run("reconcile") == (0, "shops: the log database agrees with the files\n", "")

    world.execute("DELETE FROM published_partition WHERE unit = 'Lyon'")
    code, out, _ = run("reconcile", "--json")
    assert code == 3
    assert json.loads(out) == {
        "shops": {
            "findings": {
                "file without rows": [
                    "shops/article/revenue/2024-03-01/Lyon",
                    "shops/article/sold/2024-03-01/Lyon",
                ]
            },
            "repairs": [],
            "without_a_completed_attempt": None,
        }
    }
    assert run("reconcile", "--repair")[0] == 0
    assert run("reconcile")[0] == 0
    assert len(world.rows()) == 8
