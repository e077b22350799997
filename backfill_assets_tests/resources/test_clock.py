"""What time it is for the data: really, always the same, or running through the past."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import SettingsError
from backfill_assets.resources.clock import (
    LAST_INSTANT,
    FixedClock,
    RealClock,
    ReplayingClock,
    make_clock,
)

if TYPE_CHECKING:
    from pathlib import Path

REPLAY = "2013-11-01T00:00:00-04:00@3600"
SHOW = """
import sys
from pathlib import Path
from backfill_assets.resources.clock import make_clock
sys.stdin.readline()
print(make_clock(sys.argv[1], Path(sys.argv[2])).began_at.isoformat())
"""


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "clock.json"


def test_the_real_clock_is_the_machines_own(state_file: Path) -> None:
    clock = make_clock("real", state_file)
    assert isinstance(clock, RealClock)
    before = datetime.now(UTC)
    assert before <= clock.now() <= datetime.now(UTC)
    assert clock.now().tzinfo is UTC


def test_a_fixed_clock_stands_still_in_utc_and_keeps_nothing(state_file: Path) -> None:
    clock = make_clock("2013-08-04T00:40:00-04:00", state_file)
    assert clock == FixedClock(datetime(2013, 8, 4, 4, 40, tzinfo=UTC))
    assert clock.now() == clock.now() == datetime(2013, 8, 4, 4, 40, tzinfo=UTC)
    assert not state_file.parent.exists()


def test_a_replaying_clock_runs_from_its_start_at_its_speed() -> None:
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    clock = ReplayingClock(datetime(2013, 11, 1, tzinfo=UTC), an_hour_ago, speed=24)
    shown = clock.now()
    assert datetime(2013, 11, 2, tzinfo=UTC) <= shown < datetime(2013, 11, 3, tzinfo=UTC)
    assert clock.now() >= shown


def test_a_replay_leaves_neither_end_whatever_becomes_of_the_machines_clock() -> None:
    start, now = datetime(2013, 11, 1, tzinfo=UTC), datetime.now(UTC)
    a_month_a_second = timedelta(days=30).total_seconds()
    long_ago = ReplayingClock(start, now - timedelta(days=9_000), a_month_a_second)
    assert long_ago.now() == LAST_INSTANT
    set_back = ReplayingClock(start, now + timedelta(days=1), a_month_a_second)
    assert set_back.now() == start


def test_a_replay_begins_when_it_is_first_asked_for_and_goes_on_after_a_restart(
    state_file: Path,
) -> None:
    first = make_clock(REPLAY, state_file)
    again = make_clock(REPLAY, state_file)
    assert isinstance(first, ReplayingClock)
    assert first == again
    assert first.start == datetime(2013, 11, 1, 4, tzinfo=UTC)


def test_processes_that_start_together_see_the_same_instant(state_file: Path) -> None:
    command = [sys.executable, "-c", SHOW, REPLAY, str(state_file)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    shown = {child.communicate()[0].strip() for child in children}
    clock = make_clock(REPLAY, state_file)
    assert isinstance(clock, ReplayingClock)
    assert shown == {clock.began_at.isoformat()}


def test_another_replay_begins_anew(state_file: Path) -> None:
    first = make_clock(REPLAY, state_file)
    other = make_clock("2013-11-01T00:00:00-04:00@60", state_file)
    assert isinstance(first, ReplayingClock)
    assert isinstance(other, ReplayingClock)
    assert other.began_at > first.began_at
    assert json.loads(state_file.read_text())["clock"] == "2013-11-01T00:00:00-04:00@60"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("tomorrow", "'tomorrow' is no instant"),
        ("", "'' is no instant"),
        ("2013-08-04T00:40:00", "has no offset from UTC"),
        ("2013-08-04", "has no offset from UTC"),
        ("real@60", "'real' is no instant"),
        ("2013-11-01T00:00:00-04:00@", "'' is no speed"),
        ("2013-11-01T00:00:00-04:00@fast", "'fast' is no speed"),
        ("2013-11-01T00:00:00-04:00@0", "'0' is no speed"),
        ("2013-11-01T00:00:00-04:00@-60", "'-60' is no speed"),
        ("2013-11-01T00:00:00-04:00@nan", "'nan' is no speed"),
        ("2013-11-01T00:00:00-04:00@inf", "'inf' is no speed"),
        ("0001-01-01T00:00:00+05:00", "too near to an end of the calendar"),
        ("9999-12-31T23:00:00-05:00", "too near to an end of the calendar"),
    ],
)
def test_a_text_that_is_no_clock_is_refused_with_what_is_expected(
    text: str, wrong: str, state_file: Path
) -> None:
    with pytest.raises(SettingsError, match=rf"^BACKFILL_CLOCK: .*{wrong}.*expected 'real'"):
        make_clock(text, state_file)
    assert not state_file.exists()


def test_a_mistake_in_the_speed_does_not_forget_when_a_replay_began(state_file: Path) -> None:
    first = make_clock(REPLAY, state_file)
    with pytest.raises(SettingsError, match="'36oo' is no speed"):
        make_clock("2013-11-01T00:00:00-04:00@36oo", state_file)
    assert make_clock(REPLAY, state_file) == first


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"clock": "x"}', '{"began_at": "x"}'])
def test_a_damaged_state_file_is_named_with_the_way_out(content: str, state_file: Path) -> None:
    state_file.parent.mkdir()
    state_file.write_text(content)
    with pytest.raises(SettingsError, match=r"clock\.json is damaged .*; remove it"):
        make_clock(REPLAY, state_file)
