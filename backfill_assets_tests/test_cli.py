"""The command line answers from the files alone, with exit codes that scripts can use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from backfill_assets import cli
from backfill_assets.core.partitions import ColumnType
from backfill_assets.defs import bindings
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.resources import settings as settings_module
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.tables import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backfill_assets.core.partitions import Partition

# Noon of 3 January in New York: two days have closed, LGA is not open yet, nothing by manufacturer
# is expected: 2 days × 2 airports × 3 categories × 4 value types.
CLOCK = "2013-01-03T12:00:00-05:00"
EXPECTED = 48
ONE = "flights/carrier/departures/2013-01-02/JFK"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "BACKFILL_ENV_FILE": "",
        "BACKFILL_HOME": str(tmp_path / "home"),
        "BACKFILL_CLOCK": CLOCK,
        # Nothing listens there: what answers needs the files alone.
        "BACKFILL_DATABASE_URL": "postgresql://nobody:hunter2@127.0.0.1:9/nothing",
    }


@pytest.fixture
def run(
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """``run("plan", …)`` as in a terminal: its exit code, and what it said where."""

    def command(*arguments: str, **changes: str) -> tuple[int, str, str]:
        for name in [name for name in os.environ if name.startswith("BACKFILL_")]:
            monkeypatch.delenv(name)
        for name, value in (environment | changes).items():
            monkeypatch.setenv(name, value)
        forget()
        monkeypatch.setattr(sys, "argv", ["backfill-assets", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
            raise SystemExit(0)
        captured = capsys.readouterr()
        code = 0 if end.value.code is None else int(end.value.code)
        return code, captured.out, captured.err

    yield command
    forget()


def forget() -> None:
    """Read settings anew, as a new process does."""
    settings_module.settings.cache_clear()
    settings_module.server.cache_clear()
    bindings.project.cache_clear()


@pytest.fixture
def store(environment: dict[str, str]) -> LocalPartitionStore:
    """A store that was begun, and is empty."""
    store = LocalPartitionStore(Path(environment["BACKFILL_HOME"]) / "store", [FLIGHTS])
    store.prepare()
    return store


def publish(store: LocalPartitionStore, *days: date) -> list[Partition]:
    """Commit all that is expected of some days, with one made-up row each."""
    partitions = [
        FLIGHTS.partition(query.name, day, unit)
        for query in FLIGHTS.queries
        for day in days
        for unit in ("EWR", "JFK")
        if day >= query.first_day
    ]
    with store.attempt("a-run") as attempt:
        for partition in partitions:
            query = partition.query
            group = "AA" if query.category_type is ColumnType.STRING else 7
            row = {
                query.category: pa.array([group], arrow_type(query.category_type)),
                "value": pa.array([3], arrow_type(query.column_type)),
            }
            attempt.stage(partition, pa.table(row))
        attempt.publish()
    return partitions


TWO_DAYS = (date(2013, 1, 2), date(2013, 1, 1))


def sentence(err: str) -> str:
    """Return the error that was told, which is one sentence and no traceback."""
    assert "Traceback" not in err
    assert "hunter2" not in err
    return err.strip()


def facts(out: str) -> Any:
    return json.loads(out)


@pytest.mark.usefixtures("store")
def test_a_plan_shows_what_the_next_cycles_would_do_and_says_no(run: Any) -> None:
    code, out, err = run("plan")
    assert code == 3
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "flights at 2013-01-03 17:00 UTC: closed up to 2013-01-02"
    assert lines[1].startswith("0 of 48 committed, 48 missing, 0 held, 0 unexpected")
    assert lines[2].strip() == ("24 partitions: carrier, destination, hour; all units; 2013-01-02")
    assert lines[3].strip() == ("24 partitions: carrier, destination, hour; all units; 2013-01-01")


def test_a_plan_of_a_complete_store_says_yes(run: Any, store: LocalPartitionStore) -> None:
    publish(store, *TWO_DAYS)
    code, out, _ = run("plan")
    assert code == 0
    assert "48 of 48 committed, 0 missing" in out


@pytest.mark.usefixtures("store")
def test_a_plan_as_json_is_json_alone(run: Any) -> None:
    code, out, err = run("plan", "--json")
    (plan,) = facts(out)
    assert (code, err) == (3, "")
    assert {name: plan[name] for name in ("catalogue", "latest_closed_day", "expected")} == {
        "catalogue": "flights",
        "latest_closed_day": "2013-01-02",
        "expected": EXPECTED,
    }
    assert [cycle["partitions"] for cycle in plan["cycles"]] == [24, 24]
    assert plan["cycles"][0]["units"] == ["EWR", "JFK", "LGA"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("at", "latest", "expected"),
    [
        ("2013-01-03T07:59:59-05:00", "2013-01-01", 24),
        ("2013-01-03T08:00:00-05:00", "2013-01-02", 48),
        ("2013-01-03T13:00:00Z", "2013-01-02", 48),
        ("2012-12-31T00:00:00-05:00", "2012-12-29", 0),
        ("2026-01-01T00:00:00Z", "2013-12-31", 16_764),
    ],
)
def test_a_plan_can_be_made_for_any_instant(run: Any, at: str, latest: str, expected: int) -> None:
    _, out, _ = run("plan", "--json", "--at", at)
    (plan,) = facts(out)
    assert (plan["latest_closed_day"], plan["expected"]) == (latest, expected)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("at", ["2013-01-03", "2013-01-03T12:00", "tomorrow", ""])
def test_an_instant_without_an_offset_is_refused_in_a_sentence(run: Any, at: str) -> None:
    code, out, err = run("plan", "--at", at)
    assert (code, out) == (1, "")
    assert sentence(err) == (
        f"SettingsError: --at {at!r}: give an instant with an offset, "
        "such as 2013-08-04T00:40-04:00"
    )


@pytest.mark.parametrize(
    ("partition", "state"),
    [
        (ONE, "committed: its file stands in the store"),
        ("carrier/departures/2013-01-02|JFK", "committed: its file stands in the store"),
        (
            "flights/carrier/departures/2013-01-01/JFK",
            "missing: no committed file; the next cycles take it up",
        ),
        (
            "flights/carrier/departures/2013-01-03/JFK",
            "open: its day closes at 2013-01-04T08:00:00-05:00",
        ),
        (
            "flights/carrier/departures/2013-01-02/LGA",
            "not expected: unit 'LGA' is not open on 2013-01-02",
        ),
        (
            "flights/manufacturer/departures/2013-01-02/JFK",
            "not expected: manufacturer/departures begins on 2013-03-01",
        ),
    ],
)
def test_a_partitions_state_is_explained(
    run: Any, store: LocalPartitionStore, partition: str, state: str
) -> None:
    publish(store, date(2013, 1, 2))
    code, out, _ = run("plan", "--explain", partition)
    assert code == 0
    said, place = out.splitlines()
    assert said.endswith(f" is {state}")
    assert place.startswith(str(store.root))


def test_a_state_is_explained_as_json_too(run: Any, store: LocalPartitionStore) -> None:
    store.hold([FLIGHTS.parse(ONE)], "counted twice")
    code, out, _ = run("plan", "--explain", ONE, "--json")
    assert code == 0
    assert facts(out)["state"] == "held"
    assert facts(out)["partition"] == ONE


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("partition", "complaint"),
    [
        ("flights/carrier/departures/2013-01-02/LHR", "unit 'LHR': flights has 'EWR', 'JFK'"),
        ("flights/airline/departures/2013-01-02/JFK", "query 'airline/departures': flights has"),
        ("yesterday", "partition 'yesterday': expected flights/category/value_type/"),
    ],
)
def test_an_unknown_partition_is_refused_in_a_sentence(
    run: Any, partition: str, complaint: str
) -> None:
    code, _, err = run("plan", "--explain", partition)
    assert code == 1
    assert f"UnknownPartitionError: {complaint}" in sentence(err)


def test_the_status_counts_by_query_and_says_no_while_something_is_missing(
    run: Any, store: LocalPartitionStore
) -> None:
    publish(store, date(2013, 1, 2))
    code, out, err = run("status")
    assert code == 3
    sentence(err)
    row = next(line for line in out.splitlines() if "carrier/departures" in line)
    assert row.replace("│", " ").split()[:4] == ["carrier/departures", "4", "2", "2"]
    publish(store, date(2013, 1, 1))
    assert run("status")[0] == 0


def test_the_status_as_json_is_json_alone(run: Any, store: LocalPartitionStore) -> None:
    publish(store, date(2013, 1, 2))
    code, out, _ = run("status", "--json")
    assert code == 3
    (known,) = facts(out)
    counts = known["queries"]["carrier/departures"]
    assert {name: counts[name] for name in ("expected", "committed", "missing")} == {
        "expected": 4,
        "committed": 2,
        "missing": 2,
    }


def test_verifying_sound_files_says_yes(run: Any, store: LocalPartitionStore) -> None:
    publish(store, *TWO_DAYS)
    assert run("verify")[:2] == (0, "48 files checked, 0 unsound\n")
    code, out, _ = run("verify", "--json")
    assert (code, facts(out)) == (0, {"checked": 48, "unsound": []})


def test_verifying_names_each_unsound_file_and_says_no(
    run: Any, store: LocalPartitionStore
) -> None:
    truncated, other, *_ = publish(store, date(2013, 1, 2))
    place = Path(store.location(truncated))
    place.write_bytes(place.read_bytes()[:-20])
    Path(store.location(other)).write_bytes(Path(store.location(_[-1])).read_bytes())

    code, out, err = run("verify")
    assert code == 3
    assert out == "24 files checked, 2 unsound\n"
    assert str(place) in sentence(err)
    assert store.location(other) in err

    code, out, _ = run("verify", "--json")
    assert code == 3
    assert facts(out)["checked"] == 24
    assert len(facts(out)["unsound"]) == 2


def test_sweeping_removes_what_dead_attempts_left_and_no_live_one(
    run: Any, store: LocalPartitionStore
) -> None:
    dead = store.root / ".attempts" / "a-run.0123456789ab"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "0.parquet").write_bytes(b"half")
    with store.attempt("alive"):
        assert run("sweep")[:2] == (0, "1 dead attempts removed\n")
        assert store.is_alive("alive")
    assert not dead.exists()


class TestErrors:
    """An error is a sentence on the error output, and exit code 1."""

    @pytest.mark.usefixtures("store")
    @pytest.mark.parametrize("command", ["plan", "status", "verify", "sweep"])
    def test_a_bad_clock(self, run: Any, command: str) -> None:
        code, out, err = run(command, BACKFILL_CLOCK="yesterday")
        assert (code, out) == (1, "")
        assert sentence(err).startswith(
            "SettingsError: BACKFILL_CLOCK: 'yesterday' is no instant; expected 'real'"
        )

    def test_an_unknown_variable(self, run: Any) -> None:
        code, _, err = run("plan", BACKFILL_STOR="/data")
        assert code == 1
        assert sentence(err).startswith("SettingsError: BACKFILL_STOR is no setting; there are ")

    def test_a_store_that_was_never_begun(self, run: Any) -> None:
        for command in ("plan", "status", "verify"):
            code, out, err = run(command)
            assert (code, out) == (1, "")
            assert "is not a store, or is not mounted" in sentence(err)
            assert "backfill-assets up" in err

    def test_a_store_that_lost_its_identity(self, run: Any, store: LocalPartitionStore) -> None:
        publish(store, *TWO_DAYS)
        (store.root / ".backfill-store.json").unlink()
        for command in ("plan", "status", "verify"):
            code, out, err = run(command)
            assert (code, out) == (1, "")
            assert sentence(err).startswith(f"StoreUnreadableError: {store.root} ")

    def test_a_store_that_is_no_folder(self, run: Any, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a folder")
        code, _, err = run("plan", BACKFILL_STORE=str(tmp_path / "file"))
        assert code == 1
        assert str(tmp_path / "file") in sentence(err)

    def test_a_store_of_another_format(self, run: Any, store: LocalPartitionStore) -> None:
        publish(store, *TWO_DAYS)
        code, _, err = run("plan", BACKFILL_FILE_FORMAT="json")
        assert code == 1
        assert "StoreUnsupportedError" in sentence(err)

    @pytest.mark.parametrize(
        "arguments",
        [["plna"], ["plan", "--when", "now"], ["up", "--port", "http"], ["status", "x"]],
    )
    def test_a_wrong_command_line_has_a_code_of_its_own(
        self, run: Any, arguments: list[str]
    ) -> None:
        code, _, err = run(*arguments)
        assert code == 2
        sentence(err)

    def test_help_is_no_error(self, run: Any) -> None:
        code, out, _ = run("--help")
        assert code == 0
        for command in ("up", "plan", "status", "verify", "sweep"):
            assert command in out


def test_the_installed_command_is_this_command_line(
    environment: dict[str, str], store: LocalPartitionStore
) -> None:
    command = Path(sys.executable).parent / "backfill-assets"
    found = {name: value for name, value in os.environ.items() if "BACKFILL" not in name}
    ended = subprocess.run(
        [command, "plan", "--json"],
        env=found | environment | {"BACKFILL_CLOCK": "never"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert sentence(ended.stderr).startswith("SettingsError: BACKFILL_CLOCK: 'never'")
    assert store.exists()
