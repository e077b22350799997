"""The bulk scan finds exactly what one would find by asking for each file."""

from __future__ import annotations

import os
import stat
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies

from backfill_assets.core.catalogue import Category, Unit, ValueType
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.stores.examples import (
    FLIGHTS,
    GROUP,
    JFK,
    STORES,
    STRANGE_UNITS,
    a_catalogue,
    a_store,
    publish,
)

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue

CATALOGUE = a_catalogue(
    units=[Unit(name) for name in STRANGE_UNITS],
    categories=[Category("carrier"), Category("hour")],
    value_types=[ValueType("delay")],
    versions={"hour/delay": 2},
)
VERSIONS = {"carrier": 1, "hour": 2}
DAYS = [date(2013, 7, 31) + timedelta(days=n) for n in range(4)]

# Where things stand: what the layout says, and what careless hands leave beside it.
CATEGORIES = ["carrier", "hour", "removed", "Carrier"]
VALUE_TYPES = ["delay", "removed"]
VERSION_FOLDERS = ["v1", "v2", "v3", "V1", "1"]
DAY_FOLDERS = [*map(str, DAYS), "20130801", "2013-8-1", "2013-02-30", "2013-W31-4", ".DS_Store"]
LITTER = ["jfk.parquet", "JFK.PARQUET", "JFK", ".JFK.parquet.swp", "Thumbs.db", "JFK.parquet.tmp-7"]
TWINS = ["%4AFK.parquet", "%2e%2e.parquet", "Zürich.parquet", "JFK.json", "%6a%66%6b.parquet"]
NAMES = [
    *(segment + suffix for segment in STRANGE_UNITS.values() for suffix in (".parquet", ".hold")),
    *LITTER,
    *TWINS,
]
KINDS = ["file", "file", "file", "folder", "symlink", "dangling"]

places = strategies.tuples(
    strategies.sampled_from(CATEGORIES),
    strategies.sampled_from(VALUE_TYPES),
    strategies.sampled_from(VERSION_FOLDERS),
    strategies.sampled_from(DAY_FOLDERS),
    strategies.sampled_from(NAMES),
)
likely_places = strategies.tuples(
    strategies.just("hour"),
    strategies.just("delay"),
    strategies.just("v2"),
    strategies.sampled_from(DAY_FOLDERS[:3]),
    strategies.sampled_from(NAMES),
)
trees = strategies.lists(
    strategies.tuples(
        likely_places | places, strategies.integers(1, 5), strategies.sampled_from(KINDS)
    ),
    max_size=40,
)


@settings(STORES, max_examples=1_000)
@given(trees)
def test_a_scan_of_any_tree_finds_what_asking_for_each_file_finds(
    tree: list[tuple[tuple[str, ...], int, str]],
) -> None:
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        root = Path(folder)
        store = LocalPartitionStore(root, [CATALOGUE])
        store.prepare()
        for place, depth, kind in tree:
            make(root.joinpath("flights", *place[:depth]), kind)

        inventory = store.scan(CATALOGUE)

        assert set(inventory.committed) == asked(root, CATALOGUE, ".parquet")
        assert set(inventory.held) == asked(root, CATALOGUE, ".hold")
        strangers = walked(root / "flights", depth=0)
        assert inventory.strangers == tuple(sorted(map(str, strangers)))
        assert inventory.strangers_count == len(strangers)
        # A scan within some days finds the same of those days.
        some = PartitionSet.rectangle(CATALOGUE, CATALOGUE.queries, DAYS[1:3], 1)
        within = store.scan(CATALOGUE, within=some)
        assert set(within.committed) == {p for p in inventory.committed if p.day in DAYS[1:3]}
        assert (within.strangers, within.strangers_count) == ((), 0)
        assert set(within.held) == {p for p in inventory.held if p.day in DAYS[1:3]}


def make(path: Path, kind: str) -> None:
    """Put something at a path, unless something stands there or a file stands in its way."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            path.touch(exist_ok=False)
        elif kind == "folder":
            path.mkdir()
        elif kind == "dangling":
            path.symlink_to("nowhere")
        else:
            target = path.parent / "target"
            target.touch()
            path.symlink_to(target)
    except (FileExistsError, NotADirectoryError, FileNotFoundError):
        return


def asked(root: Path, catalogue: Catalogue, suffix: str) -> set[Any]:
    """Ask for each file of each day by its literal name: slow, and with nothing of the store's."""
    found = set()
    for category, version in VERSIONS.items():
        for day in DAYS:
            for unit, segment in STRANGE_UNITS.items():
                path = f"{root}/flights/{category}/delay/v{version}/{day}/{segment}{suffix}"
                try:
                    is_file = stat.S_ISREG(os.lstat(path).st_mode)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                if is_file:
                    found.add(catalogue.partition(f"{category}/delay", day, unit))
    return found


def walked(path: Path, depth: int, category: str = "") -> list[Path]:
    """Walk down from the catalogue's folder; return what has no business there."""
    if not path.is_dir():
        return []
    strangers = []
    for entry in path.iterdir():
        below = entry.name if depth == 0 else category
        if not belongs(entry, depth, below):
            strangers.append(entry)
        elif depth < 4:
            strangers += walked(entry, depth + 1, below)
    return strangers


def belongs(entry: Path, depth: int, category: str) -> bool:
    """Return whether a name may stand at a depth, and is of the right kind."""
    names: set[str] = [
        set(VERSIONS),
        {"delay"},
        {f"v{VERSIONS.get(category)}"},
        {f"2013-07-{n:02}" for n in range(1, 32)} | {f"2013-08-{n:02}" for n in range(1, 32)},
        {s + suffix for s in STRANGE_UNITS.values() for suffix in (".parquet", ".hold")},
    ][depth]
    if entry.name not in names:
        return False
    if depth < 4:
        return entry.is_dir()
    return stat.S_ISREG(entry.lstat().st_mode)


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


def test_litter_beside_a_file_is_reported_and_changes_nothing(root: Path) -> None:
    store = a_store(root)
    publish(store, GROUP)
    folder = Path(store.location(JFK)).parent
    for name in (".DS_Store", "Thumbs.db", "JFK.parquet~", "JFK.parquet.tmp-123", "ewr.parquet"):
        (folder / name).write_bytes(b"")

    inventory = store.scan(FLIGHTS)

    assert list(inventory.committed) == list(GROUP)
    assert [Path(path).name for path in inventory.strangers] == [
        ".DS_Store",
        "JFK.parquet.tmp-123",
        "JFK.parquet~",
        "Thumbs.db",
        "ewr.parquet",
    ]


def test_a_new_version_is_missing_and_the_old_one_is_reported_and_stays(root: Path) -> None:
    publish(a_store(root), [JFK])
    newer = a_catalogue(versions={"carrier/departures": 2})
    store = LocalPartitionStore(root, [newer])

    inventory = store.scan(newer)

    assert not inventory.committed
    assert inventory.strangers == (f"{root}/flights/carrier/departures/v1",)
    assert a_store(root).verify(JFK).version == 1
    publish(store, [newer.partition("carrier/departures", JFK.day, "JFK")], [9])
    assert a_store(root).read(JFK).column("value").to_pylist() == [1, 2]


def test_a_removed_category_is_reported_and_not_deleted(root: Path) -> None:
    publish(a_store(root), GROUP)
    smaller = a_catalogue(categories=[Category("hour")])

    inventory = LocalPartitionStore(root, [smaller]).scan(smaller)

    assert not inventory.committed
    assert inventory.strangers == (f"{root}/flights/carrier",)
    assert a_store(root).verify(JFK).rows == 2


def test_a_unit_that_the_catalogue_lost_is_reported(root: Path) -> None:
    publish(a_store(root), GROUP)
    smaller = a_catalogue(units=[Unit("EWR"), Unit("LGA")])
    store = LocalPartitionStore(root, [smaller])

    inventory = store.scan(smaller)

    assert inventory.strangers == (a_store(root).location(JFK),)


def test_of_very_many_strangers_a_thousand_are_named_and_all_are_counted(memory: Path) -> None:
    store = a_store(memory / "store")
    publish(store, [JFK])
    folder = Path(store.location(JFK)).parent
    for number in range(1_200):
        (folder / f"{number}.tmp").touch()

    inventory = store.scan(FLIGHTS)

    assert (len(inventory.strangers), inventory.strangers_count) == (1_000, 1_200)
    assert list(inventory.committed) == [JFK]


def test_a_symlinked_day_is_read_where_it_points(root: Path) -> None:
    store = a_store(root)
    publish(store, [JFK])
    day = Path(store.location(JFK)).parent
    day.rename(root.parent / "elsewhere")
    day.symlink_to(root.parent / "elsewhere")

    assert list(store.scan(FLIGHTS).committed) == [JFK]
    assert store.verify(JFK).rows == 2


def test_two_catalogues_of_one_store_do_not_see_each_other(root: Path) -> None:
    trains = a_catalogue(name="trains")
    store = LocalPartitionStore(root, [FLIGHTS, trains])
    publish(store, [JFK, trains.partition("carrier/departures", JFK.day, "EWR")])

    assert [str(p) for p in store.scan(FLIGHTS).committed] == [
        "flights/carrier/departures/2013-08-03/JFK"
    ]
    assert [str(p) for p in store.scan(trains).committed] == [
        "trains/carrier/departures/2013-08-03/EWR"
    ]
    assert store.scan(FLIGHTS).strangers == ()


@pytest.mark.parametrize("unit", STRANGE_UNITS)
def test_a_unit_of_any_name_stands_below_the_root_and_comes_back(root: Path, unit: str) -> None:
    store = LocalPartitionStore(root, [CATALOGUE])
    partition = CATALOGUE.partition("carrier/delay", DAYS[1], unit)

    publish(store, [partition], [1.5])

    assert store.location(partition) == (
        f"{root}/flights/carrier/delay/v1/2013-08-01/{STRANGE_UNITS[unit]}.parquet"
    )
    assert Path(store.location(partition)).resolve().is_relative_to(root.resolve())
    assert [p.name for p in root.parent.iterdir()] == ["store"]
    assert list(store.scan(CATALOGUE).committed) == [partition]
    assert store.verify(partition).partition == f"flights/carrier/delay/2013-08-01/{unit}"
    assert store.read(partition).column("unit").to_pylist() == [unit]


def test_units_that_differ_in_case_only_keep_their_own_content(root: Path) -> None:
    store = LocalPartitionStore(root, [CATALOGUE])
    upper, lower = (CATALOGUE.partition("carrier/delay", DAYS[1], u) for u in ("JFK", "jfk"))
    publish(store, [upper], [1.0])
    publish(store, [lower], [2.0])

    assert store.read(upper).column("value").to_pylist() == [1.0]
    assert store.read(lower).column("value").to_pylist() == [2.0]
    assert store.location(upper).lower() != store.location(lower).lower()
