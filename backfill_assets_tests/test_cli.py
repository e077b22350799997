"""The command line answers from the files alone, with exit codes that scripts can use."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest

from backfill_assets.core.partitions import ColumnType
from backfill_assets.defs import bindings
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.resources import settings as settings_module
from backfill_assets.stores.files import checkers
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.tables import arrow_type
from backfill_assets_tests.command_line import Said, run_command

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
) -> Iterator[Callable[..., Said]]:
    """``run("plan", …)`` as in a terminal: its exit code, and what it said where."""

    # One data set, as in a project of one's own.
    monkeypatch.setattr(bindings, "DATA_SETS", bindings.DATA_SETS[:1])

    def command(*arguments: str, **changes: str) -> Said:
        for name in [name for name in os.environ if name.startswith("BACKFILL_")]:
            monkeypatch.delenv(name)
        for name, value in (environment | changes).items():
            monkeypatch.setenv(name, value)
        forget()
        return run_command(monkeypatch, capsys, *arguments)

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
@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        ("2013-01-03", "has no offset from UTC"),
        ("2013-01-03T12:00", "has no offset from UTC"),
        ("tomorrow", "is no instant"),
        ("", "is no instant"),
        ("0001-01-01T00:00:00+05:00", "is too near to an end of the calendar"),
        ("9999-12-31T23:00:00-05:00", "is too near to an end of the calendar"),
    ],
)
def test_an_instant_that_cannot_be_used_is_refused_in_a_sentence(
    run: Any, at: str, wrong: str
) -> None:
    code, out, err = run("plan", "--at", at)
    assert (code, out) == (1, "")
    assert sentence(err) == (
        f"SettingsError: --at {at!r} {wrong}: give one with an offset, "
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


def test_brackets_in_other_peoples_words_are_no_style(run: Any, store: LocalPartitionStore) -> None:
    store.hold([FLIGHTS.parse(ONE)], "[bold]see[/bold] [/x] :smile:")
    code, out, _ = run("plan", "--explain", ONE)
    assert code == 0
    assert out.startswith(f"{ONE} is held: [bold]see[/bold] [/x] :smile:\n")

    code, _, err = run("plan", "--explain", "flights/[/x]/departures/2013-01-02/JFK")
    assert code == 1
    assert "partition 'flights/[/x]/departures/2013-01-02/JFK': expected" in sentence(err)


@pytest.mark.parametrize("port", ["0", "65536"])
def test_a_port_that_cannot_be_is_a_wrong_command_line(run: Any, port: str) -> None:
    code, _, err = run("up", "--port", port)
    assert code == 2
    assert "--port" in sentence(err)


def test_a_home_that_cannot_be_made_is_refused_in_a_sentence(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = run("up", BACKFILL_HOME=str(tmp_path / "file" / "home"))
    assert code == 1
    assert "SettingsError: BACKFILL_HOME: " in sentence(err)


class TestOperations:
    """Hold, release and restate: what they do to the files, and what they say."""

    def test_a_hold_withdraws_until_it_is_released(
        self, run: Any, store: LocalPartitionStore
    ) -> None:
        publish(store, *TWO_DAYS)
        chosen = "flights/carrier/departures/2013-01-02/*"

        assert run("hold", chosen, "--reason", "runway works") == (0, "Held 2 partitions\n", "")
        assert run("plan", "--explain", ONE)[1].startswith(f"{ONE} is held: runway works\n")
        assert run("plan")[0] == 0  # what is held is not missing
        assert run("hold", chosen, "--reason", "again")[1] == (
            "Held 0 partitions, 2 were so before\n"
        )

        assert run("release", chosen) == (0, "Released 2 partitions\n", "")
        assert run("plan")[0] == 3
        assert len(store.scan(FLIGHTS).committed) == EXPECTED - 2

    def test_a_wish_to_restate_leaves_the_files_until_it_is_fulfilled(
        self, run: Any, store: LocalPartitionStore
    ) -> None:
        publish(store, *TWO_DAYS)

        assert run("restate", ONE) == (0, "To be restated: 1 partitions\n", "")

        assert [str(p) for p in store.scan(FLIGHTS).restating] == [ONE]
        assert len(store.scan(FLIGHTS).committed) == EXPECTED
        assert run("plan")[0] == 0

    @pytest.mark.parametrize("command", [("hold", "--reason", "why"), ("release",), ("restate",)])
    def test_what_names_nothing_is_refused_in_a_sentence(
        self, run: Any, store: LocalPartitionStore, command: tuple[str, ...]
    ) -> None:
        publish(store, *TWO_DAYS)

        code, out, err = run(*command, "flights/carrier/departures/2013-01-02/LHR")

        assert (code, out) == (1, "")
        assert sentence(err) == ("UnknownPartitionError: unit 'LHR': there are 'EWR', 'JFK', 'LGA'")
        assert len(store.scan(FLIGHTS).committed) == EXPECTED


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
    assert row.split() == ["carrier/departures", "4", "2", "2", "50.00%"]
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


def test_verifying_leaves_out_what_is_held(run: Any, store: LocalPartitionStore) -> None:
    first, *_ = publish(store, date(2013, 1, 2))
    store.hold([first], "wrong")
    publish(store, date(2013, 1, 2))  # a run that was at work meanwhile

    assert run("verify")[:2] == (0, "23 files checked, 0 unsound\n")


def test_verifying_goes_on_after_a_file_that_the_disk_cannot_read(
    run: Any, store: LocalPartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable, *_ = publish(store, date(2013, 1, 2))
    place = store.location(unreadable)
    read_bytes = Path.read_bytes

    def failing(path: Path) -> bytes:
        if str(path) == place:
            raise OSError(errno.EIO, os.strerror(errno.EIO), place)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", failing)
    code, out, err = run("verify")

    assert (code, out) == (3, "24 files checked, 1 unsound\n")
    assert f"{place}: Input/output error" in sentence(err)


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
        for command in ("plan", "status", "verify", "sweep", "prune"):
            code, out, err = run(command)
            assert (code, out) == (1, "")
            assert "is not a store, or is not mounted" in sentence(err)
            assert "backfill-assets up" in err

    def test_a_store_that_lost_its_identity(self, run: Any, store: LocalPartitionStore) -> None:
        publish(store, *TWO_DAYS)
        (store.root / ".backfill-store.json").unlink()
        for command in ("plan", "status", "verify", "sweep"):
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
        for command in ("up", "plan", "status", "verify", "sweep", "adopt", "prune"):
            assert command in out


class TestAdopting:
    """Files that exist already, and the store that takes them in."""

    @pytest.fixture
    def history(self, tmp_path: Path) -> Path:
        """Two days, as another store holds them, and one file that is damaged."""
        other = LocalPartitionStore(tmp_path / "history", [FLIGHTS])
        other.prepare()
        publish(other, *TWO_DAYS)
        Path(other.location(FLIGHTS.parse(ONE))).write_bytes(b"damaged")
        return tmp_path / "history"

    def test_files_are_taken_in_the_refused_are_named_and_it_can_be_repeated(
        self, run: Any, store: LocalPartitionStore, history: Path
    ) -> None:
        code, out, err = run("adopt", str(history))
        assert code == 3
        assert out == "47 files adopted, 0 stood committed already, 1 refused\n"
        path = history / "flights/carrier/departures/v1/2013-01-02/JFK.parquet"
        assert sentence(err).startswith(f"{path}: cannot be read as Parquet: ")
        assert run("verify")[:2] == (0, "47 files checked, 0 unsound\n")
        path.unlink()
        code, out, err = run("adopt", str(history))
        assert (code, err) == (0, "")
        assert out == "0 files adopted, 47 stood committed already, 0 refused\n"
        assert len(store.scan(FLIGHTS).committed) == 47

    def test_adopting_begins_a_store_and_a_dry_run_does_not(
        self, run: Any, environment: dict[str, str], history: Path
    ) -> None:
        root = Path(environment["BACKFILL_HOME"]) / "store"
        code, out, _ = run("adopt", str(history), "--dry-run")
        assert (code, root.exists()) == (3, False)
        assert out == "47 files would be adopted, 0 stood committed already, 1 refused\n"
        assert run("adopt", str(history))[0] == 3
        assert run("plan")[1].splitlines()[1].startswith("47 of 48 committed, 1 missing")
        shutil.rmtree(root)
        code, _, err = run("adopt", str(history))
        assert code == 1
        assert "was a store before and is none now" in sentence(err)

    def test_as_json_it_names_every_refused_file(
        self, run: Any, store: LocalPartitionStore, history: Path
    ) -> None:
        code, out, err = run("adopt", str(history), "--json")
        assert (code, err) == (3, "")
        told = facts(out)
        assert (told["adopted"], told["stood_already"], told["dry_run"]) == (47, 0, False)
        assert [Path(refusal["path"]).name for refusal in told["refused"]] == ["JFK.parquet"]
        assert store.exists()

    def test_ctrl_c_ends_it_and_its_helpers_without_a_traceback(
        self, environment: dict[str, str], store: LocalPartitionStore, tmp_path: Path
    ) -> None:
        tree = LocalPartitionStore(tmp_path / "tree", [FLIGHTS])
        tree.prepare()
        publish(tree, *(date(2013, 1, 1) + timedelta(days=number) for number in range(90)))
        helpers = checkers.processes_for(90 * 24)
        process = subprocess.Popen(
            [sys.executable, "-m", "backfill_assets.cli", "adopt", str(tree.root)],
            env=os.environ | environment | {"BACKFILL_CLOCK": "2013-05-01T12:00:00-05:00"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a terminal interrupts the whole group that is in front
            text=True,
        )
        with process:
            known = psutil.Process(process.pid)
            deadline = time.monotonic() + 120
            while len(started := known.children()) < helpers or not store.is_alive("adopt"):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert (process.returncode, out, sentence(err)) == (130, "", "")
        # One that was only just being started finds by itself that nobody asks.
        assert psutil.wait_procs(started, timeout=60)[1] == []
        assert not store.is_alive("adopt")

    @pytest.mark.usefixtures("store")
    def test_a_name_in_no_known_encoding_is_shown_as_far_as_it_can_be(
        self, run: Any, tmp_path: Path
    ) -> None:
        (tmp_path / "tree").mkdir()
        Path(os.fsdecode(bytes(tmp_path / "tree") + b"/[bold]\xff.parquet")).touch()
        code, _, err = run("adopt", str(tmp_path / "tree"))
        assert code == 3
        assert "/[bold]?.parquet: is no file of a query on a day" in sentence(err)

    @pytest.mark.usefixtures("store")
    def test_a_folder_that_is_not_there_is_an_error(self, run: Any, tmp_path: Path) -> None:
        code, out, err = run("adopt", str(tmp_path / "nowhere"))
        assert (code, out) == (1, "")
        assert sentence(err).startswith(f"SettingsError: {tmp_path}/nowhere is no folder; ")


class TestPruning:
    """What the catalogues do not ask for: shown first, removed on request."""

    @pytest.fixture
    def old(self, store: LocalPartitionStore) -> LocalPartitionStore:
        """A complete store with a later version, a day that was never expected, and litter."""
        publish(store, *TWO_DAYS)
        departures = store.root / "flights/carrier/departures"
        for path in ("v2/2013-01-02/JFK.parquet", "v1/2012-12-31/JFK.parquet", "v1/notes"):
            (departures / path).parent.mkdir(parents=True, exist_ok=True)
            (departures / path).write_bytes(b"12345")
        return store

    def test_a_dry_run_is_the_default_and_counts_by_kind(
        self, run: Any, old: LocalPartitionStore
    ) -> None:
        before = sorted(old.root.rglob("*"))
        code, out, err = run("prune")
        assert (code, err) == (0, "")
        assert sorted(old.root.rglob("*")) == before
        lines = out.splitlines()
        assert "not expected any more 1 1 5" in [
            " ".join(line.replace("│", " ").split()) for line in lines
        ]
        assert "  flights/carrier/departures/v1/2012-12-31/JFK.parquet" in lines
        assert lines[-1] == "Nothing was removed; `backfill-assets prune --yes` removes it"

    def test_with_yes_it_goes_and_what_is_expected_stays(
        self, run: Any, old: LocalPartitionStore
    ) -> None:
        code, out, _ = run("prune", "--yes")
        assert code == 0
        assert out.splitlines()[-1] == "6 of 6 files and folders removed"
        assert run("verify")[:2] == (0, "48 files checked, 0 unsound\n")
        assert run("prune")[1] == "flights: nothing to prune\n"
        assert old.scan(FLIGHTS).strangers == ()

    @pytest.mark.usefixtures("old")
    def test_kinds_can_be_chosen(self, run: Any) -> None:
        code, out, _ = run("prune", "--superseded", "--yes", "--json")
        assert (code, facts(out)["removed"]) == (0, 0)
        code, out, _ = run("prune", "--superseded", "--unexpected", "--json")
        found = facts(out)["catalogues"][0]["kinds"]
        assert {kind: (one["files"], one["folders"]) for kind, one in found.items()} == {
            "no file of the store": (1, 0),
            "not expected any more": (1, 1),
            "version that the catalogue does not ask for yet": (1, 2),
        }
        assert found["no file of the store"]["paths"] == ["flights/carrier/departures/v1/notes"]
        code, out, _ = run("prune", "--unexpected", "--yes", "--json")
        assert (code, facts(out)["removed"]) == (0, 6)

    @pytest.mark.usefixtures("store")
    def test_an_empty_store_has_nothing_to_prune(self, run: Any) -> None:
        assert run("prune")[:2] == (0, "flights: nothing to prune\n")
        code, out, _ = run("prune", "--yes", "--json")
        assert code == 0
        assert facts(out) == {
            "removed": 0,
            "catalogues": [
                {
                    "catalogue": "flights",
                    "total": {"files": 0, "folders": 0, "bytes": 0},
                    "kinds": {},
                    "kept": [],
                    "warnings": [],
                }
            ],
        }


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
