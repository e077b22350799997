"""Leftovers are found by kind and removed on request; nothing else is ever touched."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.catalogue import Unit
from backfill_assets.core.errors import StoreUnreadableError
from backfill_assets.core.leftovers import LeftoverKind
from backfill_assets.core.plan import make_plan
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.stores.children import (
    as_nobody,
    in_child,
    mount_tmpfs,
    own_mounts_work,
    with_own_mounts,
)
from backfill_assets_tests.stores.examples import (
    EWR,
    FLIGHTS,
    GROUP,
    JFK,
    JFK_DELAY,
    LGA_NEXT_DAY,
    NEXT_DAY,
    STORES,
    a_catalogue,
    a_store,
    files_below,
    publish,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.core.catalogue import Catalogue

LATEST = NEXT_DAY
CARRIER = "flights/carrier/departures"


def found(
    store: LocalPartitionStore, catalogue: Catalogue = FLIGHTS, latest: date = LATEST
) -> dict[str, str]:
    """Return path and kind of what pruning would remove."""
    leftovers = store.leftovers(catalogue, latest).found
    return {leftover.path: leftover.kind.name for leftover in leftovers}


def prune(store: LocalPartitionStore, catalogue: Catalogue = FLIGHTS, latest: date = LATEST) -> int:
    return store.remove(store.leftovers(catalogue, latest).found)


def changed(store: LocalPartitionStore, **changes: object) -> tuple[LocalPartitionStore, Catalogue]:
    """Return the same store for a catalogue with some of its parts changed."""
    catalogue = a_catalogue(**changes)
    return LocalPartitionStore(store.root, [catalogue]), catalogue


def write(path: Path, content: bytes = b"strange") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def store(root: Path) -> LocalPartitionStore:
    """A store with four committed partitions."""
    store = a_store(root)
    publish(store, [*GROUP, JFK_DELAY])
    return store


def test_a_store_of_what_is_expected_has_nothing_to_prune(store: LocalPartitionStore) -> None:
    before = files_below(store.root)
    assert found(store) == {}
    assert prune(store) == 0
    assert files_below(store.root) == before


def test_an_old_version_goes_with_its_folders_and_the_new_one_stays(
    store: LocalPartitionStore,
) -> None:
    newer, catalogue = changed(store, versions={"carrier/departures": 2})
    new = catalogue.partition("carrier/departures", JFK.day, "JFK")
    publish(newer, [new])
    assert found(newer, catalogue) == dict.fromkeys(
        [
            f"{CARRIER}/v1/2013-08-03/EWR.parquet",
            f"{CARRIER}/v1/2013-08-03/JFK.parquet",
            f"{CARRIER}/v1/2013-08-03",
            f"{CARRIER}/v1/2013-08-04/LGA.parquet",
            f"{CARRIER}/v1/2013-08-04",
            f"{CARRIER}/v1",
        ],
        "SUPERSEDED",
    )
    assert prune(newer, catalogue) == 6
    assert os.listdir(store.root / CARRIER) == ["v2"]  # noqa: PTH208 - names only
    assert list(newer.scan(catalogue).committed) == [new, *[catalogue.parse(str(JFK_DELAY))]]


def test_a_version_that_is_asked_for_later_is_told_apart_from_an_old_one(
    store: LocalPartitionStore,
) -> None:
    write(store.root / CARRIER / "v3/2013-08-03/JFK.parquet")
    assert set(found(store).values()) == {"LATER_VERSION"}
    assert len(found(store)) == 3


def test_removed_categories_value_types_and_units_are_found_by_kind(
    store: LocalPartitionStore,
) -> None:
    fewer = a_catalogue(
        categories=FLIGHTS.categories[1:], value_types=FLIGHTS.value_types, units=FLIGHTS.units
    )
    assert set(found(store, fewer).values()) == {"REMOVED_CATEGORY"}
    assert "flights/carrier" in found(store, fewer)
    assert found(store, a_catalogue(value_types=FLIGHTS.value_types[1:])) == dict.fromkeys(
        [
            f"{CARRIER}/v1/2013-08-03/EWR.parquet",
            f"{CARRIER}/v1/2013-08-03/JFK.parquet",
            f"{CARRIER}/v1/2013-08-03",
            f"{CARRIER}/v1/2013-08-04/LGA.parquet",
            f"{CARRIER}/v1/2013-08-04",
            f"{CARRIER}/v1",
            CARRIER,
        ],
        "REMOVED_VALUE_TYPE",
    )
    assert found(store, a_catalogue(units=[Unit("JFK"), Unit("LGA")])) == {
        f"{CARRIER}/v1/2013-08-03/EWR.parquet": "REMOVED_UNIT"
    }


def test_days_and_units_that_are_not_expected_any_more_are_found(
    store: LocalPartitionStore,
) -> None:
    later, catalogue = changed(store, first_day=NEXT_DAY)
    assert found(later, catalogue) == dict.fromkeys(
        [
            f"{CARRIER}/v1/2013-08-03/EWR.parquet",
            f"{CARRIER}/v1/2013-08-03/JFK.parquet",
            f"{CARRIER}/v1/2013-08-03",
            "flights/carrier/delay/v1/2013-08-03/JFK.parquet",
            "flights/carrier/delay/v1/2013-08-03",
        ],
        "NOT_EXPECTED",
    )
    shut = a_catalogue(units=[Unit("EWR", first_day=NEXT_DAY), Unit("JFK"), Unit("LGA")])
    assert found(store, shut) == {f"{CARRIER}/v1/2013-08-03/EWR.parquet": "NOT_EXPECTED"}
    assert prune(later, catalogue) == 5
    assert [p.day for p in later.scan(catalogue).committed] == [NEXT_DAY]


def test_what_retention_does_not_keep_goes_and_moves_on_with_the_watermark(
    store: LocalPartitionStore,
) -> None:
    kept, catalogue = changed(store, retention_days=2)
    assert found(kept, catalogue, NEXT_DAY) == {}
    gone = found(kept, catalogue, NEXT_DAY + timedelta(days=1))
    assert set(gone.values()) == {"NOT_EXPECTED"}
    assert all("2013-08-03" in path for path in gone)


def test_an_open_day_is_no_leftover(store: LocalPartitionStore) -> None:
    assert found(store, latest=date(2013, 8, 1)) == {}
    assert found(store, latest=date(2013, 7, 1)) == {}


def test_strangers_go_and_what_stands_beside_them_stays(store: LocalPartitionStore) -> None:
    before = files_below(store.root)
    day = store.root / CARRIER / "v1/2013-08-03"
    for path in (
        day / "JFK.parquet.bak",
        day / "JFK.json",
        day / "notes/deep/er.txt",
        day / ".JFK.parquet.swp",
        store.root / CARRIER / "v1/2013-8-3/JFK.parquet",
        store.root / CARRIER / "v1/README",
        store.root / CARRIER / "version1",
        store.root / "flights/carrier/notes.txt",
        store.root / "flights/Carrier/x",
        store.root / "flights/.DS_Store",
    ):
        write(path)
    os.mkfifo(day / "pipe")
    (day / "LGA.parquet").mkdir()
    assert set(found(store).values()) == {"STRANGER"}
    assert prune(store) == 11 + 1 + 2 + 1 + 1
    assert files_below(store.root) == before
    assert found(store) == {}


def test_a_file_where_a_category_should_be_is_a_stranger(store: LocalPartitionStore) -> None:
    write(store.root / "flights/hour")
    assert found(store) == {"flights/hour": "STRANGER"}


def test_empty_folders_go_except_where_work_is_about_to_be_put(store: LocalPartitionStore) -> None:
    for folder in (
        "flights/carrier/departures/v1/2013-07-31",
        "flights/carrier/departures/v1/2013-08-01",
        "flights/hour/delay/v1",
        "flights/hour/delay/v2/2013-08-03",
        "flights/gone/delay",
    ):
        (store.root / folder).mkdir(parents=True)
    assert found(store) == {
        "flights/carrier/departures/v1/2013-07-31": "NOT_EXPECTED",
        "flights/gone/delay": "REMOVED_CATEGORY",
        "flights/gone": "REMOVED_CATEGORY",
        "flights/hour/delay/v2/2013-08-03": "LATER_VERSION",
        "flights/hour/delay/v2": "LATER_VERSION",
    }
    assert prune(store) == 5
    assert (store.root / "flights/carrier/departures/v1/2013-08-01").is_dir()


def test_a_hold_stays_wherever_it_stands_and_keeps_its_folders(store: LocalPartitionStore) -> None:
    store.hold([EWR, LGA_NEXT_DAY], "counted twice")
    later, catalogue = changed(store, first_day=date(2013, 8, 5), versions={"carrier/delay": 2})
    write(store.root / "flights/gone/delay/v1/2013-08-03/JFK.hold")
    leftovers = later.leftovers(catalogue, LATEST)
    assert set(leftovers.kept) == {
        f"{CARRIER}/v1/2013-08-03/EWR.hold",
        f"{CARRIER}/v1/2013-08-04/LGA.hold",
        "flights/gone/delay/v1/2013-08-03/JFK.hold",
    }
    assert not any(leftover.path.endswith(".hold") for leftover in leftovers.found)
    prune(later, catalogue)
    assert set(files_below(store.root)) == {*leftovers.kept, ".backfill-store.json"}
    assert store.hold_reason(EWR) == "counted twice"


def test_a_wish_to_restate_goes_with_its_partition_and_stays_with_one_that_is_expected(
    store: LocalPartitionStore,
) -> None:
    store.ask_to_restate([JFK, LGA_NEXT_DAY])
    assert found(store) == {}
    later, catalogue = changed(store, first_day=NEXT_DAY)
    prune(later, catalogue)
    assert list(later.scan(catalogue).restating) == [catalogue.parse(str(LGA_NEXT_DAY))]


def test_a_symlink_goes_and_what_it_points_to_stays(
    store: LocalPartitionStore, tmp_path: Path
) -> None:
    outside = write(tmp_path / "outside/precious/JFK.parquet", b"precious")
    day = store.root / CARRIER / "v1/2013-08-03"
    (day / "link").symlink_to(outside)
    (day / "folder").symlink_to(outside.parent)
    (day / "LGA.parquet").symlink_to(outside)
    (store.root / CARRIER / "v0").symlink_to(outside.parent)
    (store.root / CARRIER / "v1/2013-07-01").symlink_to(outside.parent)
    (store.root / "flights/gone").symlink_to(tmp_path / "outside")
    (store.root / "flights/loop").symlink_to(store.root)
    assert len(found(store)) == 7
    assert prune(store) == 7
    assert outside.read_bytes() == b"precious"
    assert len(list(store.scan(FLIGHTS).committed)) == 4
    assert found(store) == {}


def test_a_symlink_that_the_layout_uses_is_neither_removed_nor_followed(
    store: LocalPartitionStore, tmp_path: Path
) -> None:
    outside = write(tmp_path / "elsewhere/delay/v1/2013-08-03/strange.txt")
    (store.root / "flights/hour").symlink_to(tmp_path / "elsewhere")
    (store.root / CARRIER / "v1/2013-08-01").symlink_to(tmp_path)
    leftovers = store.leftovers(FLIGHTS, LATEST)
    assert leftovers.found == ()
    assert set(leftovers.kept) == {"flights/hour", f"{CARRIER}/v1/2013-08-01"}
    assert prune(store) == 0
    assert outside.exists()


def test_a_folder_that_becomes_a_symlink_before_it_is_emptied_leads_nowhere(
    store: LocalPartitionStore, memory: Path
) -> None:
    write(store.root / "flights/gone/delay/JFK.parquet")
    leftovers = store.leftovers(FLIGHTS, LATEST).found
    moved = memory / "moved"
    (store.root / "flights/gone").rename(moved)
    (store.root / "flights/gone").symlink_to(moved)
    assert store.remove(leftovers) == 0
    assert (moved / "delay/JFK.parquet").exists()
    assert (store.root / "flights/gone").is_symlink()


def test_what_came_or_went_since_it_was_looked_for_is_no_error(store: LocalPartitionStore) -> None:
    gone = write(store.root / "flights/gone/delay/JFK.parquet")
    write(store.root / "flights/gone/delay/LGA.parquet")
    leftovers = store.leftovers(FLIGHTS, LATEST).found
    gone.unlink()
    late = write(store.root / "flights/gone/late.parquet")
    assert store.remove(leftovers) == 2
    assert late.exists()
    assert prune(store) == 2
    assert not (store.root / "flights/gone").exists()


def test_other_folders_of_the_root_are_none_of_prunings_business(
    store: LocalPartitionStore,
) -> None:
    write(store.root / "trains/carrier/delay/v1/2013-08-03/JFK.parquet")
    write(store.root / "README")
    before = files_below(store.root)
    assert found(store) == {}
    assert prune(store) == 0
    assert files_below(store.root) == before


def test_a_root_that_is_reached_through_a_symlink_is_pruned(
    store: LocalPartitionStore, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(store.root)
    linked = a_store(tmp_path / "link")
    write(store.root / "flights/gone/JFK.parquet")
    assert prune(linked) == 2
    assert not (store.root / "flights/gone").exists()


def test_a_place_that_cannot_be_read_stops_everything(store: LocalPartitionStore) -> None:
    closed = store.root / "flights/gone/closed"
    closed.mkdir(parents=True)
    write(store.root / "flights/gone/a")
    for path in (store.root, *store.root.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    closed.chmod(0)
    with pytest.raises(StoreUnreadableError, match=r"gone/closed"):
        as_nobody(lambda: store.leftovers(FLIGHTS, LATEST))
    closed.chmod(0o777)


def test_a_store_that_lost_its_identity_is_not_pruned(store: LocalPartitionStore) -> None:
    leftover = write(store.root / "flights/gone/JFK.parquet")
    leftovers = store.leftovers(FLIGHTS, LATEST).found
    (store.root / ".backfill-store.json").unlink()
    with pytest.raises(StoreUnreadableError):
        store.remove(leftovers)
    with pytest.raises(StoreUnreadableError):
        store.leftovers(FLIGHTS, LATEST)
    assert leftover.exists()


@pytest.mark.skipif(not own_mounts_work(), reason="this system lets nobody mount")
def test_another_device_below_the_store_is_left_alone(store: LocalPartitionStore) -> None:
    place = store.root / "flights/gone/mounted"
    place.mkdir(parents=True)

    def look() -> tuple[list[str], tuple[str, ...], int, bool]:
        mount_tmpfs(place, "size=1m")
        write(place / "precious")
        leftovers = store.leftovers(FLIGHTS, LATEST)
        removed = store.remove(leftovers.found)
        return [f.path for f in leftovers.found], leftovers.kept, removed, place.exists()

    assert with_own_mounts(look) == ([], ("flights/gone/mounted",), 0, True)


def test_a_removal_is_told_only_once_it_is_durable(store: LocalPartitionStore) -> None:
    """The flush comes last: a child whose flush fails reports nothing."""
    write(store.root / "flights/gone/JFK.parquet")

    def act() -> str:
        from backfill_assets.stores.files import durability

        def fail(descriptor: int) -> None:
            raise OSError(5, f"device error on {descriptor > 0}")

        durability._call_syncfs = fail
        try:
            return f"told {prune(store)}"
        except StoreUnreadableError:
            return "refused"

    assert in_child(act) == "refused"


def test_sizes_are_those_of_the_files(store: LocalPartitionStore) -> None:
    write(store.root / "flights/gone/a", b"12345")
    sizes = {one.path: (one.size, one.is_folder) for one in store.leftovers(FLIGHTS, LATEST).found}
    assert sizes == {"flights/gone/a": (5, False), "flights/gone": (0, True)}


# Parts of paths that meet: known ones, unknown ones, and some that look alike.
_levels: Sequence[Sequence[str]] = (
    ("flights", "trains"),
    ("carrier", "hour", "gone", "X"),
    ("departures", "delay", "gone"),
    ("v1", "v2", "v", "w1"),
    ("2013-08-01", "2013-08-03", "2013-08-09", "2013-7-1"),
    ("JFK", "EWR", "OLD", "%4F%4C%44"),
)
_endings = st.sampled_from((".parquet", ".hold", ".restate", ".json", ".parquet~", ""))


@st.composite
def trees(draw: st.DrawFn) -> set[str]:
    """Draw paths of files, most of them as deep as a partition's file."""
    paths = set()
    for _ in range(draw(st.integers(0, 25))):
        depth = draw(st.sampled_from((6, 6, 6, 6, 5, 4, 3, 2)))
        parts = [draw(st.sampled_from(level)) for level in _levels[:depth]]
        paths.add("/".join(parts) + draw(_endings))
    # No file where another one needs a folder.
    return {path for path in paths if not any(p.startswith(f"{path}/") for p in paths)}


catalogues = st.builds(
    a_catalogue,
    first_day=st.sampled_from((date(2013, 8, 1), date(2013, 8, 2), date(2013, 8, 3))),
    last_day=st.sampled_from((None, date(2013, 8, 3), date(2013, 8, 8))),
    retention_days=st.sampled_from((None, 1, 3)),
    versions=st.sampled_from(({}, {"carrier/departures": 2})),
    units=st.sampled_from(([Unit("JFK")], [Unit("EWR", last_day=date(2013, 8, 2)), Unit("JFK")])),
)


@STORES
@given(tree=trees(), catalogue=catalogues, latest=st.sampled_from((date(2013, 8, 3), LATEST)))
def test_of_any_tree_just_what_is_not_asked_for_goes_and_a_second_look_finds_nothing(
    tree: set[str], catalogue: Catalogue, latest: date, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("pruned") / "store"
    store = LocalPartitionStore(root, [catalogue])
    store.prepare()
    for path in tree:
        write(root / path)
    before = store.scan(catalogue)
    expected = make_plan(
        catalogue,
        present=before.committed,
        held=before.held,
        in_flight=replace(before.held, masks={}),
        now=catalogue.closing.closes_at(latest),
    )
    prune(store, catalogue, latest)
    after, files = store.scan(catalogue), set(files_below(root)) - {".backfill-store.json"}
    # Nothing that is expected went, nor any hold, nor anything outside the catalogue's folder.
    assert after.committed & expected.expected == before.committed & expected.expected
    assert after.held == before.held
    assert {p for p in tree if p.endswith(".hold") or not p.startswith("flights/")} <= files
    # And nothing else stayed, but for what will be expected when its day closes.
    for partition in after.committed | after.restating:
        assert catalogue.why_not_expected(partition, latest) is None
    kept = {
        Path(store.location(partition)).relative_to(root).with_suffix("").as_posix()
        for partition in after.committed | after.restating
    }
    for path in files:
        assert path.rpartition(".")[0] in kept or path.endswith(".hold") or path[0] == "t"
    assert store.leftovers(catalogue, latest).found == ()


def test_the_kinds_say_what_they_are() -> None:
    assert [kind.value for kind in LeftoverKind] == [
        "superseded version",
        "version that the catalogue does not ask for yet",
        "removed category",
        "removed value type",
        "removed unit",
        "not expected any more",
        "no file of the store",
    ]
