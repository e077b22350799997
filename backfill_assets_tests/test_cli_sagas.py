"""Sagas from a terminal: listed, shown, decided and cancelled."""

from __future__ import annotations

import getpass
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from backfill_assets.cli import sagas as commands
from backfill_assets.core.errors import NotAppliedError
from backfill_assets.resources.saga_desk import SagaDesk
from backfill_assets.stores.sagas.alerts import AlertDelivery
from backfill_assets_tests.command_line import Said, be_nobody_known, run_command
from backfill_assets_tests.resources.small_project import a_project
from backfill_assets_tests.stores.sagas.trip import World, prepare, raising

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def world(clone_database: Callable[..., str], tmp_path: Path) -> Iterator[World]:
    made = World(clone_database("sagas", prepare), tmp_path)
    yield made
    for sagas in made.opened:
        sagas.close()


@pytest.fixture
def desk(world: World) -> SagaDesk:
    delivery = AlertDelivery(lambda: world.url, [], worker="one", clock=world.clock)
    return SagaDesk(world.sagas(), delivery, world.clock)


@pytest.fixture
def run(
    desk: SagaDesk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Said]:
    """``run("list", …)`` as ``backfill-assets saga list …``: its exit code, and what it said."""
    project = replace(a_project(tmp_path / "store"), saga_desk=desk)
    monkeypatch.setattr(commands, "project", lambda: project)

    def command(*arguments: str) -> Said:
        return run_command(monkeypatch, capsys, "saga", *arguments)

    return command


@pytest.fixture
def version(world: World, desk: SagaDesk) -> str:
    """Of a saga that waits: its hotel is full."""
    world.start(desk.sagas, "asking")
    world.hooks["room.do.before"] = [raising(NotAppliedError("the Ritz is full"))]
    return str(desk.drive("asking/1").version)


def test_sagas_are_listed_and_one_that_waits_makes_the_answer_no(
    run: Callable[..., Said], version: str
) -> None:
    code, out, _ = run("list")
    assert code == 3
    assert out.splitlines() == [
        f"asking/1 is AWAITING_DECISION since 2013-08-03 12:00:00 UTC, version {version}",
        "  room.do: NotAppliedError: the Ritz is full; `backfill-assets saga show asking/1`",
    ]
    code, out, _ = run("list", "--json")
    assert [(s["saga"], s["status"]) for s in json.loads(out)] == [
        ("asking/1", "AWAITING_DECISION")
    ]
    assert run("list", "--status", "COMPLETED") == (0, "", "")


@pytest.mark.usefixtures("version")
def test_the_commands_that_a_case_file_shows_are_commands(
    run: Callable[..., Said], world: World
) -> None:
    code, out, _ = run("show", "asking/1")
    assert code == 0
    assert "Still applied: seat: applied; credit: applied" in out
    command = next(line for line in out.splitlines() if "decide asking/1 replace" in line)
    words = command.split("`")[1].split()
    assert words[:3] == ["backfill-assets", "saga", "decide"]
    arguments = [{"'JSON'": '{"hotel": "Savoy"}', "'WHY'": "why"}.get(w, w) for w in words[2:]]

    code, out, _ = run(*arguments)
    assert (code, out.startswith("asking/1 is COMPLETED since")) == (0, True)
    assert world.execute("SELECT hotel FROM partner") == [("Savoy",)]
    assert world.execute("SELECT who FROM saga_journal WHERE event = 'decided'") == [
        (getpass.getuser(),)
    ]


def test_a_user_without_a_name_says_who_decides(
    run: Callable[..., Said], world: World, desk: SagaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start(desk.sagas)
    desk.drive("trip/1")
    be_nobody_known(monkeypatch)
    code, _, err = run("cancel", "trip/1", "--why", "ill")
    assert code == 1
    assert err.startswith("SettingsError: --who: this machine does not know your login")


def test_a_saga_is_cancelled_and_who_and_why_are_kept(
    run: Callable[..., Said], world: World, desk: SagaDesk
) -> None:
    world.start(desk.sagas)
    desk.drive("trip/1")
    code, out, _ = run("cancel", "trip/1", "--who", "ada", "--why", "ill")
    assert (code, out.startswith("trip/1 is COMPENSATED since")) == (0, True)
    code, out, _ = run("show", "trip/1", "--json")
    journal = [(e["event"], e["who"], e["why"]) for e in json.loads(out)["journal"]]
    assert journal[2] == ("cancelled", "ada", "ill")


def test_what_is_refused_is_a_sentence(run: Callable[..., Said], version: str) -> None:
    assert version != "1"
    code, _, err = run("decide", "asking/1", "retry", "--version", "1", "--why", "why")
    assert (code, err) == (
        1,
        f"SagaVersionError: saga asking/1 is at version {version}, and 1 was looked at; look at it "
        "again\n",
    )
    code, _, err = run("show", "asking/2")
    assert (code, "UnknownSagaError: there is no saga 'asking/2'" in err) == (1, True)
