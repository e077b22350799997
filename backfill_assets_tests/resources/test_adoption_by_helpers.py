"""Several processes check what is taken in: the same comes of it, and none of them outlives us."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.errors import HelperDiedError, StoreFullError
from backfill_assets.core.partitions import Partition
from backfill_assets.resources import adoption
from backfill_assets.resources.adoption import adopt
from backfill_assets.resources.project import Project
from backfill_assets.stores.files import checkers
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.resources.small_project import (
    DAY_4,
    DAY_5,
    EXPECTED,
    SHOPS,
    a_catalogue,
    a_project,
    committed,
    fill,
)
from backfill_assets_tests.stores.children import (
    child,
    in_child,
    mount_tmpfs,
    own_mounts_work,
    with_own_mounts,
)

if TYPE_CHECKING:
    from backfill_assets.resources.adoption import Adoption

DEADLINE_SECONDS = 60
MANY_ROWS = 40_000  # more than a helper keeps before it hands results over
PARIS = SHOPS.partition("article/sold", DAY_5, "Paris")


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """The tree of a catalogue, as another store of the same business holds it."""
    fill(a_project(tmp_path / "history"))
    return tmp_path / "history"


@pytest.fixture
def mixed(history: Path) -> Path:
    """That tree with files of other programs, large ones, and some that are refused."""
    sold = history / "shops/article/sold/v1"
    revenue = history / "shops/article/revenue/v1"
    plain = pa.table({"article": ["A0", "A1"], "value": [1, 2]})
    large = pa.table({"article": [f"A{n}" for n in range(MANY_ROWS)], "value": range(MANY_ROWS)})
    for place, table in {
        "2024-03-05/Nice": plain,
        "2024-03-04/Paris": large,
        "2024-03-04/Lyon": large,
        "2024-03-03/Nice": plain.set_column(1, "value", pa.array(["one", "two"])),
        "2024-03-11/Nice": plain,
    }.items():
        (sold / place).parent.mkdir(exist_ok=True)
        pq.write_table(table, sold / f"{place}.parquet")
    (sold / "2024-03-02/Paris.parquet").write_bytes(b"damaged")
    shutil.copy(revenue / "2024-03-05/Paris.parquet", revenue / "2024-03-05/Lyon.parquet")
    (revenue / "2024-03-03/Nice.parquet").unlink()
    (revenue / "2024-03-03/Nice.json").write_text(json.dumps(plain.to_pylist()))
    return history


def use_helpers(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Have ``count`` processes check, in batches so small that all of them have many."""
    monkeypatch.setattr(adoption, "processes_for", lambda _files: count)
    monkeypatch.setattr(adoption, "GROUP_FILES", 7)
    monkeypatch.setattr(checkers, "BATCH_FILES", 2)
    monkeypatch.setattr(checkers, "BATCHES_AHEAD", 1)


def helpers_of(pid: int) -> list[int]:
    """Return the children of a process that run code of ours, and not of Python's own."""
    return [
        process.pid
        for process in psutil.Process(pid).children()
        if (command := process.cmdline())[1:2] == ["-c"] and "multiprocessing" not in command[2]
    ]


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, f"{pids} are still there"
        time.sleep(0.01)


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "store.json"
    }


def a_store(root: Path, **choices: str) -> Project:
    store = LocalPartitionStore(root, [SHOPS], **choices)
    store.prepare()
    like = a_project(root.with_name("like"))
    return Project(data_sets=like.data_sets, store=store, clock=like.clock)


class TestResults:
    @pytest.mark.parametrize(
        "choices", [{}, {"file_format": "json"}, {"commit_protocol": "marker"}], ids=str
    )
    def test_the_store_and_the_refusals_are_the_same_whoever_checks(
        self,
        tmp_path: Path,
        mixed: Path,
        monkeypatch: pytest.MonkeyPatch,
        choices: dict[str, str],
    ) -> None:
        def taken_in(count: int) -> tuple[list[Adoption], dict[str, bytes], list[tuple[int, int]]]:
            use_helpers(monkeypatch, count)
            root, seen = tmp_path / "store", []
            project = a_store(root, **choices)
            with project.store.attempt("earlier") as attempt:
                other = pa.table({"article": ["A0"], "value": [7]})
                attempt.stage(SHOPS.partition("article/sold", DAY_4, "Nice"), other)
                attempt.publish()
            outcomes = [
                adopt(project, mixed, dry_run=True),
                adopt(project, mixed, on_progress=lambda *counts: seen.append(counts)),
                adopt(project, mixed),
            ]
            found = contents(root)
            identity = {name for name in found if "/" not in name}
            shutil.rmtree(root)
            return outcomes, {k: v for k, v in found.items() if k not in identity}, seen

        alone, helped = taken_in(0), taken_in(3)
        assert helped == alone
        outcome = alone[0][1]
        assert (outcome.adopted, outcome.stood_already) == (EXPECTED - 4, 0)
        assert [
            Path(r.path).relative_to(mixed / "shops/article").name for r in outcome.refused
        ] == [
            "Lyon.parquet",
            "Paris.parquet",
            "Nice.parquet",
            "Nice.parquet",
            "Nice.parquet",
        ]
        assert alone[0][2].stood_already == EXPECTED - 4

    def test_what_is_no_value_that_can_be_sent_is_no_obstacle(
        self, root: Path, history: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A helper gets the query of a file, and nothing that a project has defined."""

        @dataclass(frozen=True, slots=True, kw_only=True)
        class Local(ClosingPolicy):
            pass

        policy = Local(zone=SHOPS.closing.zone, allowed_lateness=SHOPS.closing.allowed_lateness)
        use_helpers(monkeypatch, 2)
        outcome = adopt(a_project(root, catalogue=a_catalogue(closing=policy)), history)
        assert (outcome.adopted, outcome.refused) == (EXPECTED, [])

    def test_none_is_left_when_all_is_done(
        self, root: Path, history: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_helpers(monkeypatch, 2)
        seen: list[list[int]] = []
        adopt(
            a_project(root),
            history,
            on_progress=lambda *_: seen.append(helpers_of(os.getpid())),
        )
        assert [len(pids) for pids in seen] == [2] * 7 + [0]

    def test_a_helper_hands_large_files_over_one_by_one_and_small_ones_together(
        self, mixed: Path
    ) -> None:
        """So it never keeps more than one large file."""
        sold = mixed / "shops/article/sold/v1"
        batch = [
            (
                str(sold / f"2024-03-0{day}/{unit}.parquet"),
                PARIS.query,
                date(2024, 3, day),
                unit,
                to,
            )
            for day, unit, to in (
                (5, "Paris", "parquet"),
                (4, "Lyon", "parquet"),
                (4, "Paris", "parquet"),
                (2, "Paris", "parquet"),
                (4, "Lyon", None),
                (5, "Nice", "parquet"),
            )
        ]
        assert [len(frame) for frame in checkers._frames(batch)] == [2, 1, 3]
        assert [len(frame) for frame in checkers._frames([])] == []


class TestDeaths:
    def test_a_helper_that_dies_is_an_error_and_what_was_taken_in_stands(
        self, root: Path, history: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_helpers(monkeypatch, 2)
        project = a_project(root)

        def kill_one(done: int, _count: int) -> None:
            if done == 14:
                os.kill(helpers_of(os.getpid())[0], signal.SIGKILL)

        with pytest.raises(HelperDiedError, match=r"ended by SIGKILL, at .*parquet or soon after"):
            adopt(project, history, on_progress=kill_one)
        assert helpers_of(os.getpid()) == []
        assert list(committed(project)) == list(project.plan(SHOPS).expected)[:14]
        outcome = adopt(project, history)
        assert (outcome.adopted, outcome.stood_already) == (EXPECTED - 14, 14)

    def test_a_helper_that_cannot_start_is_an_error(
        self, root: Path, history: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ) -> None:
        use_helpers(monkeypatch, 2)
        monkeypatch.setattr(checkers, "_SERVE", "raise SystemExit(7) # {path}")
        with pytest.raises(HelperDiedError, match="ended with exit code 7"):
            adopt(a_project(root), history)
        assert helpers_of(os.getpid()) == []
        assert capfd.readouterr().err == ""

    def test_what_prints_in_a_helper_does_not_print_among_its_answers(
        self, root: Path, history: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_helpers(monkeypatch, 2)
        loud = "print('a banner', flush=True)\n" + checkers._SERVE
        monkeypatch.setattr(checkers, "_SERVE", loud)
        assert adopt(a_project(root), history).adopted == EXPECTED

    def test_a_helper_that_cannot_read_what_it_is_asked_is_an_error_and_says_why(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        class Unreadable:
            def __reduce__(self) -> Any:
                return int, ("nothing",)

        question = checkers.Question("a.parquet", Partition(Unreadable(), DAY_5, "Paris"), None)  # type: ignore[arg-type]
        with (
            checkers.checkers(1) as checked,
            pytest.raises(HelperDiedError, match=r"ended with exit code 1, at a\.parquet"),
        ):
            list(checked([question]))
        assert "invalid literal for int" in capfd.readouterr().err

    @pytest.mark.parametrize("done", [0, 21])
    def test_killed_while_helpers_work_none_of_them_stays_and_repeating_completes_it(
        self,
        tmp_path: Path,
        root: Path,
        history: Path,
        monkeypatch: pytest.MonkeyPatch,
        done: int,
    ) -> None:
        use_helpers(monkeypatch, 2)
        project = a_project(root)
        note = tmp_path / "helpers"

        def stop(so_far: int, _count: int) -> None:
            if so_far == done:
                note.write_text(json.dumps(helpers_of(os.getpid())))
                os.kill(os.getpid(), signal.SIGSTOP)

        with child(lambda: adopt(project, history, on_progress=stop)) as running:
            running.wait_until_stopped()
            pids = json.loads(note.read_text())
            assert [is_running(pid) for pid in pids] == [True, True]
            running.kill()
        wait_until_gone(pids)
        outcome = adopt(project, history)
        assert (outcome.adopted, outcome.stood_already) == (EXPECTED - done, done)

    @pytest.mark.skipif(not own_mounts_work(), reason="this system gives tests no small disk")
    @pytest.mark.parametrize("protocol", ["link", "marker"])
    def test_on_a_full_disk_what_was_taken_in_stands_and_repeating_completes_it(
        self, root: Path, history: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
    ) -> None:
        use_helpers(monkeypatch, 2)
        root.mkdir()

        def on_a_small_disk() -> tuple[str, int, list[int], Adoption]:
            mount_tmpfs(root, "size=2m")
            project = a_store(root, commit_protocol=protocol)
            free = os.statvfs(root).f_bavail * os.statvfs(root).f_frsize
            ballast = root / "ballast"
            ballast.write_bytes(bytes(free - 80 * 1024))
            with pytest.raises(StoreFullError) as caught:
                adopt(project, history)
            helpers = helpers_of(os.getpid())
            stands = committed(project)
            assert all(project.store.verify(partition) for partition in stands)
            assert [path for path in root.glob(".attempts/*") if path.is_dir()] == []
            ballast.unlink()
            return str(caught.value), len(stands), helpers, adopt(project, history)

        told, stands, helpers, outcome = with_own_mounts(on_a_small_disk)
        assert "Make room" in told
        assert 0 < stands < EXPECTED
        assert helpers == []
        assert (outcome.adopted, outcome.stood_already) == (EXPECTED - stands, stands)

    def test_broken_off_by_hand_no_helper_stays(
        self, root: Path, history: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_helpers(monkeypatch, 2)
        pids = []

        def break_off(done: int, _count: int) -> None:
            if done == 14:
                pids.extend(helpers_of(os.getpid()))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            adopt(a_project(root), history, on_progress=break_off)
        assert [is_running(pid) for pid in pids] == [False, False]


class TestNumber:
    def test_a_small_tree_is_not_worth_a_process_and_a_large_one_gets_one_for_each_core(
        self,
    ) -> None:
        def counts() -> list[int]:
            return [checkers.processes_for(files) for files in (0, 1_999, 2_000, 10**6)]

        def on_one_core() -> list[int]:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            return counts()

        several = min(len(os.sched_getaffinity(0)), 4)
        assert several == 1 or counts() == [0, 0, several, several]
        assert in_child(on_one_core) == [0, 0, 0, 0]
