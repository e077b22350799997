"""A process that looks again finds what a fresh one finds, and reads only what has changed."""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import StoreUnreadableError
from backfill_assets.stores.files import looks as looks_module
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.files.looks import FULL_SECONDS, SETTLE_SECONDS, Looks, Reading
from backfill_assets_tests.stores.children import (
    mount_tmpfs,
    own_mounts_work,
    unmount,
    with_own_mounts,
)
from backfill_assets_tests.stores.examples import (
    DAY,
    EWR,
    FLIGHTS,
    GROUP,
    JFK,
    LGA_NEXT_DAY,
    TICK_SECONDS,
    a_catalogue,
    a_store,
    publish,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.core.partitions import Partition

STEPS = 150
FIRST_DAY = date(2013, 8, 1)
CATALOGUE = a_catalogue()

needs_own_mounts = pytest.mark.skipif(
    not own_mounts_work(), reason="this system gives ordinary processes no mounts"
)


@dataclass
class Days:
    """The folder of a query's days, and looks at it with a clock that a test moves."""

    folder: Path
    now: float = 100.0
    reads: int = 0
    has_strangers: bool = False
    looks: Looks = field(init=False)

    def __post_init__(self) -> None:
        self.looks = Looks(clock=lambda: self.now)

    def put(self, name: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    def look(self, *, after: float = SETTLE_SECONDS + 1) -> dict[str, list[str]]:
        self.now += after
        masks = self.looks.masks(CATALOGUE, str(self.folder), self._read)
        return {str(day): names for day, names in masks[0].items()}  # type: ignore[misc]

    def settle(self) -> None:
        """Look until nothing more is read."""
        for _ in range(4):
            self.look()
        before = self.reads
        self.look()
        assert self.reads == before

    def _read(self) -> Reading:
        self.reads += 1
        days = sorted(self.folder.iterdir())
        names = {day.name: sorted(p.name for p in day.iterdir()) for day in days}
        folders = [str(self.folder), *map(str, days)]
        return Reading((names,), folders, self.has_strangers)  # type: ignore[arg-type]


@pytest.fixture
def days(tmp_path: Path) -> Days:
    made = Days(tmp_path / "v1")
    made.put("2013-08-01/JFK")
    made.put("2013-08-02/JFK")
    return made


def test_the_third_look_at_what_stood_long_enough_is_the_last_one_that_reads(days: Days) -> None:
    found = days.look()
    assert found == {"2013-08-01": ["JFK"], "2013-08-02": ["JFK"]}
    for expected in (2, 3, 3, 3):
        assert days.look() == found
        assert days.reads == expected


def test_while_the_times_are_young_every_look_reads(days: Days) -> None:
    days.look()
    for expected in (2, 3, 4):
        days.look(after=SETTLE_SECONDS / 2.5)
        assert days.reads == expected


def add(days: Days) -> None:
    days.put("2013-08-02/EWR")


def remove(days: Days) -> None:
    (days.folder / "2013-08-02/JFK").unlink()


def rename(days: Days) -> None:
    (days.folder / "2013-08-02/JFK").rename(days.folder / "2013-08-02/LGA")


def add_a_day(days: Days) -> None:
    days.put("2013-08-03/JFK")


def remove_a_day(days: Days) -> None:
    shutil.rmtree(days.folder / "2013-08-01")


def remove_all(days: Days) -> None:
    shutil.rmtree(days.folder)
    days.folder.mkdir()


def put_another_tree_there(days: Days) -> None:
    other = days.folder.with_name("other")
    shutil.copytree(days.folder, other)
    (other / "2013-08-02/JFK").unlink()
    for name in ("2013-08-01", "2013-08-02", "."):
        shutil.copystat(days.folder / name, other / name)
    days.folder.rename(days.folder.with_name("old"))
    other.rename(days.folder)


def set_the_time_back(days: Days) -> None:
    folder = days.folder / "2013-08-02"
    before = folder.stat()
    (folder / "JFK").unlink()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert folder.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    "change",
    [
        add,
        remove,
        rename,
        add_a_day,
        remove_a_day,
        remove_all,
        put_another_tree_there,
        set_the_time_back,
    ],
)
def test_any_change_of_a_name_is_found_at_once(days: Days, change: Callable[[Days], None]) -> None:
    days.settle()
    time.sleep(TICK_SECONDS)
    change(days)
    expected = {day.name: sorted(p.name for p in day.iterdir()) for day in days.folder.iterdir()}
    assert days.look() == expected
    days.settle()
    assert days.look() == expected


def settled_store(root: Path) -> LocalPartitionStore:
    """Return a store with three partitions, and looks that remember them."""
    store = a_store(root)
    publish(store, GROUP)
    store._looks.clock = iter(range(0, 100_000, 4)).__next__
    for _ in range(4):
        assert len(store.scan(FLIGHTS).committed) == len(GROUP)
    return store


@pytest.mark.skipif(not own_mounts_work(), reason="ordinary processes get no mounts here")
@pytest.mark.parametrize("depth", [0, 1, 3], ids=["a day", "a version", "a category"])
def test_what_is_mounted_over_a_folder_is_found_and_so_is_what_it_hid(
    root: Path, depth: int
) -> None:
    def mounting() -> list[list[Partition]]:
        store = settled_store(root)
        folder = Path(store.location(LGA_NEXT_DAY)).parents[depth]
        mount_tmpfs(folder, "size=1m")
        hidden = [list(store.scan(FLIGHTS).committed) for _ in range(4)]
        unmount(folder)
        return [*hidden, list(store.scan(FLIGHTS).committed)]

    *hidden, found = with_own_mounts(mounting)
    assert hidden == [[] if depth else [EWR, JFK]] * 4
    assert found == list(GROUP)


@pytest.mark.skipif(not own_mounts_work(), reason="ordinary processes get no mounts here")
def test_a_store_that_is_mounted_again_is_looked_at_as_before(root: Path) -> None:
    def mounting() -> list[Partition]:
        store = settled_store(root)
        mount_tmpfs(root, "size=1m")
        with pytest.raises(StoreUnreadableError, match="not mounted"):
            store.scan(FLIGHTS)
        unmount(root)
        return list(store.scan(FLIGHTS).committed)

    assert with_own_mounts(mounting) == list(GROUP)


def test_a_symlinked_day_that_is_pointed_elsewhere_is_found(root: Path) -> None:
    store = a_store(root)
    publish(store, GROUP)
    day = Path(store.location(JFK)).parent
    full, empty = root.with_name("full"), root.with_name("empty")
    day.rename(full)
    empty.mkdir()
    day.symlink_to(full)
    store = settled_store(root)
    time.sleep(TICK_SECONDS)
    day.unlink()
    day.symlink_to(empty)
    assert list(store.scan(FLIGHTS).committed) == [LGA_NEXT_DAY]


def test_a_day_that_is_deleted_and_made_again_at_once_is_found_every_time(root: Path) -> None:
    store = settled_store(root)
    day = Path(store.location(JFK)).parent
    for unit in ("LGA", "JFK", "EWR") * 10:  # often with the inode that it had
        shutil.rmtree(day)
        day.mkdir()
        put(store, f"{day}/{unit}.parquet")
        expected = [LGA_NEXT_DAY, FLIGHTS.partition("carrier/departures", DAY, unit)]
        for _ in range(4):
            assert list(store.scan(FLIGHTS).committed) == expected


def test_what_changes_while_the_disks_clock_stands_still_is_found(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks_module, "_times", lambda folders: [(1, 1, 1, 1)] * len(folders))
    days.look()
    days.look()
    days.put("2013-08-02/EWR")
    assert days.look(after=SETTLE_SECONDS * 0.6)["2013-08-02"] == ["EWR", "JFK"]
    (days.folder / "2013-08-02/EWR").unlink()
    assert days.look(after=SETTLE_SECONDS * 0.6)["2013-08-02"] == ["JFK"]
    # By now the clock has moved on: what changes from here on has another time.
    before = days.reads
    days.look()
    assert days.reads == before


def test_once_in_a_while_all_is_read_whatever_the_times_say(days: Days) -> None:
    days.settle()
    before = days.reads
    days.look(after=FULL_SECONDS)
    assert days.reads == before + 1
    days.look()
    assert days.reads == before + 1


def test_strangers_are_looked_at_every_time(days: Days) -> None:
    days.has_strangers = True
    for expected in range(1, 8):
        days.look()
        assert days.reads == expected


def test_a_folder_that_is_not_there_yet_is_found_when_it_is(tmp_path: Path) -> None:
    store = LocalPartitionStore(tmp_path / "store", [CATALOGUE])
    store.prepare()
    store._looks.clock = iter(range(0, 10_000, 10)).__next__
    for _ in range(5):
        assert not store.scan(CATALOGUE).committed
    partition = CATALOGUE.partition("carrier/delay", FIRST_DAY, "JFK")
    put(store, store.location(partition))
    assert set(store.scan(CATALOGUE).committed) == {partition}


@pytest.mark.usefixtures("no_links")
def test_a_marker_that_is_cut_in_place_counts_no_more_at_once(root: Path) -> None:
    store = a_store(root, protocol="marker")
    publish(store, [JFK])
    store._looks.clock = iter(range(0, 10_000, 10)).__next__
    for _ in range(5):
        assert list(store.scan(FLIGHTS).committed) == [JFK]
    (marker,) = Path(store.location(JFK)).parent.glob("*.commit")
    os.truncate(marker, 40)  # no folder's time moves

    assert list(store.scan(FLIGHTS).committed) == []


@needs_own_mounts
def test_what_is_mounted_over_a_day_or_all_of_them_is_found_at_once_and_when_it_goes(
    tmp_path: Path,
) -> None:
    def history() -> list[set[str]]:
        store = LocalPartitionStore(tmp_path / "store", [CATALOGUE])
        store.prepare()
        store._looks.clock = iter(range(0, 10_000, 10)).__next__
        partition = CATALOGUE.partition("carrier/delay", FIRST_DAY, "JFK")
        place = Path(store.location(partition))
        put(store, str(place))

        def settled() -> set[str]:
            found = [{str(p) for p in store.scan(CATALOGUE).committed} for _ in range(5)]
            assert all(one == found[0] for one in found)
            return found[0]

        seen = [settled()]
        for folder in (place.parent, place.parents[1], place.parents[3]):
            mount_tmpfs(folder, "size=64k")
            seen.append(settled())
            unmount(folder)
            seen.append(settled())
        return seen

    one = {"flights/carrier/delay/2013-08-01/JFK"}
    assert with_own_mounts(history) == [one, set(), one, set(), one, set(), one]


def test_a_symlinked_day_that_leads_elsewhere_by_now_is_read_there(days: Days) -> None:
    first, second = days.put("../first/JFK").parent, days.put("../second/LGA").parent
    middle = days.folder.with_name("middle")
    middle.symlink_to(first)
    (days.folder / "2013-08-03").symlink_to(middle)  # its own folder's times never move
    days.settle()
    assert days.look()["2013-08-03"] == ["JFK"]
    middle.unlink()
    middle.symlink_to(second)
    assert days.look()["2013-08-03"] == ["LGA"]
    (second / "EWR").touch()
    days.settle()
    assert days.look()["2013-08-03"] == ["EWR", "LGA"]


def put(store: LocalPartitionStore, path: str) -> None:
    target = store.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()


@pytest.mark.parametrize("seed", range(4))
def test_in_any_history_a_process_that_remembers_finds_what_a_fresh_one_finds(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    root = tmp_path / "store"
    store = LocalPartitionStore(root, [CATALOGUE])
    store.prepare()
    store._looks.clock = iter(range(0, 100_000, 4)).__next__
    for _ in range(STEPS):
        for _ in range(chance.choice([0, 0, 0, 1, 2])):
            change_something(store, chance)
        time.sleep(TICK_SECONDS)
        found = store.scan(CATALOGUE)
        fresh = LocalPartitionStore(root, [CATALOGUE]).scan(CATALOGUE)
        assert found == fresh


def change_something(store: LocalPartitionStore, chance: random.Random) -> None:
    """Add, remove, move or hold something, in one of a few places."""
    partition = CATALOGUE.partition(
        chance.choice(CATALOGUE.queries).name,
        FIRST_DAY + timedelta(days=chance.randrange(3)),
        chance.choice(CATALOGUE.unit_names),
    )
    path = store.root / store.location(partition)
    kind = chance.choice(["put", "put", "put", "remove", "day", "query", "hold", "litter", "away"])
    if kind == "put":
        put(store, str(path))
    elif kind == "remove":
        path.unlink(missing_ok=True)
    elif kind == "day":
        shutil.rmtree(path.parent, ignore_errors=True)
    elif kind == "query":
        shutil.rmtree(path.parents[2], ignore_errors=True)
    elif kind == "hold":
        put(store, str(path.with_suffix(".hold")))
    elif kind == "litter":
        put(store, str(path.parent / chance.choice(["Thumbs.db", "jfk.parquet"])))
    elif path.parents[1].exists():
        away = path.parents[1].with_name("v9")
        shutil.rmtree(away, ignore_errors=True)
        path.parents[1].rename(away)
