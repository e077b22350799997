"""A pruning that is killed at every call of the operating system leaves a store to prune again."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING

from backfill_assets.core.catalogue import Unit
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.stores.crash_points import killed_at
from backfill_assets_tests.stores.examples import (
    EWR,
    FLIGHTS,
    GROUP,
    JFK,
    JFK_DELAY,
    LGA_NEXT_DAY,
    NEXT_DAY,
    a_catalogue,
    a_store,
    attempts_left,
    files_below,
    publish,
    rows_of,
)

if TYPE_CHECKING:
    from pathlib import Path

CHANGED = a_catalogue(versions={"carrier/delay": 2}, units=[Unit("JFK"), Unit("LGA")])


def changed(root: Path, protocol: str) -> LocalPartitionStore:
    return LocalPartitionStore(root, [CHANGED], commit_protocol=protocol)


def store_with_leftovers(root: Path, protocol: str) -> None:
    """Leave every kind: an old version, a removed unit and category, strangers, an empty folder."""
    store = a_store(root, protocol=protocol)
    publish(store, [*GROUP, JFK_DELAY])
    publish(store, [EWR], (3, 4), replace=True)
    store.hold([LGA_NEXT_DAY], "counted twice")
    new = CHANGED.partition("carrier/delay", JFK_DELAY.day, "JFK")
    publish(changed(root, protocol), [new])
    for path in ("flights/gone/x/y", "flights/carrier/departures/v1/notes"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"strange")
    (root / "flights/carrier/departures/v1/2013-07-01").mkdir()


def prune(store: LocalPartitionStore) -> None:
    store.remove(store.leftovers(CHANGED, NEXT_DAY).found)


def test_killed_at_any_call_each_leftover_is_there_or_gone_and_pruning_again_completes_it(
    memory: Path, protocol: str
) -> None:
    store_with_leftovers(memory / "before", protocol)
    before = files_below(memory / "before")
    shutil.copytree(memory / "before", memory / "model")
    prune(changed(memory / "model", protocol))
    after = files_below(memory / "model")
    folders_after = folders_below(memory / "model")
    assert sorted({path.partition(".")[0] for path in after if path[0] != "."}) == [
        "flights/carrier/delay/v2/2013-08-03/JFK",
        "flights/carrier/departures/v1/2013-08-03/JFK",
        "flights/carrier/departures/v1/2013-08-04/LGA",
    ]
    reached = set()
    for number in itertools.count():
        root = memory / f"store-{number}"
        shutil.copytree(memory / "before", root)
        store = changed(root, protocol)
        died_at = killed_at(number, lambda: prune(store))  # noqa: B023 - runs at once

        left = files_below(root)
        assert after.items() <= left.items() <= before.items(), (number, died_at)
        inventory = store.scan(CHANGED)
        assert len(inventory.committed) == 2
        assert [p.key for p in inventory.held] == [LGA_NEXT_DAY.key]
        # What is half pruned never goes back to older content.
        assert content_of_ewr(root, protocol) in ([3, 4], None)
        prune(store)
        assert files_below(root) == after
        assert folders_below(root) == folders_after
        assert store.leftovers(CHANGED, NEXT_DAY).found == ()
        assert attempts_left(root) == []
        shutil.rmtree(root)
        if died_at is None:
            break
        reached.add(died_at)
    assert reached >= {"open", "close", "scandir", "unlink", "rmdir", "_call_syncfs"}


def test_a_publish_into_a_folder_that_pruning_removes_meanwhile_is_not_lost(
    memory: Path, protocol: str
) -> None:
    """Whatever comes first, a committed partition stays: the folder it needs is made again."""
    store = a_store(memory / "store", protocol=protocol)
    publish(store, [EWR])
    catalogue = a_catalogue(first_day=NEXT_DAY)
    shut = LocalPartitionStore(store.root, [catalogue], commit_protocol=protocol)
    with store.attempt("run") as attempt:
        attempt.stage(JFK, rows_of(JFK))
        leftovers = shut.leftovers(catalogue, NEXT_DAY).found
        assert shut.remove(leftovers) == len(leftovers)
        assert not (store.root / "flights/carrier/departures/v1/2013-08-03").exists()
        attempt.publish()
    assert list(store.scan(FLIGHTS).committed) == [JFK]


def content_of_ewr(root: Path, protocol: str) -> list[int] | None:
    """Return what stands of the removed unit, for the catalogue before it was removed."""
    store = a_store(root, protocol=protocol)
    if EWR not in store.scan(FLIGHTS).committed:
        return None
    values: list[int] = store.read(EWR).column("value").to_pylist()
    return values


def folders_below(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir()}
