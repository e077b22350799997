"""A process is killed at every call of the operating system; the store is whole and goes on."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.stores.crash_points import killed_at
from backfill_assets_tests.stores.examples import (
    EWR,
    FLIGHTS,
    GROUP,
    JFK,
    JFK_DELAY,
    LGA_NEXT_DAY,
    a_catalogue,
    a_store,
    attempts_left,
    files_below,
    publish,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backfill_assets.core.partitions import Partition

OLD, NEW = (1, 2, 3), (4, None)
_PUBLISHING = {"open", "write", "half a write", "close", "link", "unlink", "flock", "_call_syncfs"}


def nothing(store: LocalPartitionStore) -> None:
    """Leave the root as it is: it does not exist."""
    assert not store.exists()


def prepare(store: LocalPartitionStore) -> None:
    store.prepare()


def publish_new(store: LocalPartitionStore) -> None:
    publish(store, GROUP, NEW)


def publish_old(store: LocalPartitionStore) -> None:
    publish(store, GROUP, OLD)


def publish_neighbours(store: LocalPartitionStore) -> None:
    """Make the days' folders exist."""
    days_of_group = [FLIGHTS.partition(p.query.name, p.day, "EWR") for p in (LGA_NEXT_DAY, JFK)]
    publish(store, days_of_group, NEW)


def publish_groups(store: LocalPartitionStore) -> None:
    with store.attempt("run") as attempt:
        for partition in GROUP:
            attempt.stage(partition, rows_of(partition, NEW))
            attempt.publish()


def replace(store: LocalPartitionStore) -> None:
    publish(store, GROUP, NEW, replace=True)


def hold(store: LocalPartitionStore) -> None:
    store.hold(GROUP, "the source was wrong")


def hold_and_leave_the_files(store: LocalPartitionStore) -> None:
    """Leave what a crash between hold and removal leaves."""
    store.prepare()
    hold(store)
    publish(store, [EWR], OLD)


def release(store: LocalPartitionStore) -> None:
    store.release(GROUP)


def leave_dead_attempts(store: LocalPartitionStore) -> None:
    store.prepare()
    for name in ("dead.1", "dead.2"):
        (store.root / ".attempts" / name).mkdir()
        (store.root / ".attempts" / name / "0.parquet").write_bytes(b"half")


def revoke(store: LocalPartitionStore) -> None:
    store.revoke("dead")


def sweep(store: LocalPartitionStore) -> None:
    store.sweep()


@dataclass(frozen=True, slots=True)
class Scenario:
    """What stands before, what is done and killed, and where one must have been killed."""

    before: Callable[[LocalPartitionStore], None]
    act: Callable[[LocalPartitionStore], None]
    reached: set[str]


SCENARIOS = {
    "a publish into a new store": Scenario(nothing, publish_new, _PUBLISHING | {"mkdir", "fsync"}),
    "a publish of three groups": Scenario(prepare, publish_groups, _PUBLISHING | {"mkdir"}),
    "a publish into existing folders": Scenario(publish_neighbours, publish_new, _PUBLISHING),
    "a replacement": Scenario(publish_old, replace, _PUBLISHING | {"replace"}),
    "an adoption": Scenario(publish_new, publish_new, _PUBLISHING),
    "a hold of files": Scenario(publish_old, hold, {"replace", "unlink", "_call_syncfs"}),
    "a hold of what is missing": Scenario(prepare, hold, {"replace", "mkdir", "_call_syncfs"}),
    "a release": Scenario(hold_and_leave_the_files, release, {"unlink", "_call_syncfs"}),
    "a revocation": Scenario(leave_dead_attempts, revoke, {"rename", "unlink", "rmdir"}),
    "a sweep": Scenario(leave_dead_attempts, sweep, {"flock", "unlink", "rmdir"}),
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_killed_at_any_call_each_partition_is_as_before_or_as_after_and_the_next_try_converges(
    scenario: Scenario, memory: Path
) -> None:
    model = a_store(memory / "model")
    scenario.before(model)
    before, states_before = files_below(model.root), states_of(model)
    if model.root.exists():
        shutil.copytree(model.root, memory / "before")
    scenario.act(model)
    after, states_after = files_below(model.root), states_of(model)
    reached = set()
    for number in itertools.count():
        root = memory / f"store-{number}"
        if (memory / "before").exists():
            shutil.copytree(memory / "before", root)
        store = a_store(root)
        if (memory / "before").exists():
            store.prepare()  # its own crash points are those of the new store
        died_at = killed_at(number, lambda: scenario.act(store))  # noqa: B023 - runs at once

        for path, content in files_below(root).items():
            assert content in (before.get(path), after.get(path)), (number, died_at, path)
        for partition, state in states_of(store).items():
            assert state in (states_before[partition], states_after[partition]), (number, died_at)
        scenario.act(store)
        assert files_below(root) == after
        assert not store.is_alive("")
        store.sweep()
        assert attempts_left(root) == []
        shutil.rmtree(root)
        if died_at is None:
            break
        reached.add(died_at)
    assert reached >= scenario.reached


def states_of(store: LocalPartitionStore) -> dict[Partition, str]:
    """Return for each partition ``missing``, ``held``, or the digest of its checked content."""
    states = dict.fromkeys(GROUP, "missing")
    if store.exists():
        inventory = store.scan(FLIGHTS)
        assert inventory.strangers == ()
        committed = inventory.committed - inventory.held
        states |= {p: store.verify(p).digest for p in GROUP if p in committed}
        states |= {p: "held" for p in GROUP if p in inventory.held}
    return states


def test_killed_at_any_call_a_store_has_its_old_identity_or_the_new_one(memory: Path) -> None:
    trains = a_catalogue(name="trains")
    reached = set()
    for number in itertools.count():
        root = memory / f"store-{number}"
        publish(a_store(root), [JFK])
        died_at = killed_at(
            number,
            lambda: LocalPartitionStore(root, [FLIGHTS, trains]).prepare(),  # noqa: B023 - at once
        )

        assert list(a_store(root).scan(FLIGHTS).committed) == [JFK]
        zones = json.loads((root / ".backfill-store.json").read_bytes())["zones"]
        assert zones.keys() in ({"flights"}, {"flights", "trains"})
        LocalPartitionStore(root, [FLIGHTS, trains]).prepare()
        zones = json.loads((root / ".backfill-store.json").read_bytes())["zones"]
        assert zones == {"flights": "America/New_York", "trains": "America/New_York"}
        if died_at is None:
            break
        reached.add(died_at)
    assert reached >= {"open", "fsync", "replace", "link", "mkdir", "flock"}


def test_a_store_is_whole_after_thirty_crashes_in_a_row(memory: Path) -> None:
    store = a_store(memory / "store")
    publish(store, [JFK_DELAY])
    # Never more than 30 calls far: what each crash leaves is what the next one finds.
    for number in range(30):
        assert killed_at(number, lambda: publish_new(a_store(memory / "store"))) is not None

    assert store.sweep() > 0
    publish_new(store)

    assert attempts_left(store.root) == []
    assert [store.read(p).column("value").to_pylist() for p in GROUP] == [[4, None]] * 3
