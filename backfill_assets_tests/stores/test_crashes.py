"""A process is killed at every call of the operating system; the store is whole and goes on."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from backfill_assets.stores.files import identity
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
_WRITING = {"open", "write", "half a write", "close", "unlink", "flock", "_call_syncfs"}
_PUBLISHING = _WRITING | {"link"}
_BY_LINKS = frozenset({"link", "rename", "replace"})
_NUMBERED = re.compile(r"(?<=[A-Z])\.[0-9]+\.(commit$|[0-9a-f]{32}\.)")


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
    """What stands before, what is done and killed, and where one must have been killed.

    Attributes:
        by_links: Calls that are made where links are possible, and not by markers.
    """

    before: Callable[[LocalPartitionStore], None]
    act: Callable[[LocalPartitionStore], None]
    reached: set[str]
    by_links: frozenset[str] = _BY_LINKS


SCENARIOS = {
    "a publish into a new store": Scenario(nothing, publish_new, _PUBLISHING | {"mkdir", "fsync"}),
    "a publish of three groups": Scenario(prepare, publish_groups, _PUBLISHING | {"mkdir"}),
    "a publish into existing folders": Scenario(publish_neighbours, publish_new, _PUBLISHING),
    "a replacement": Scenario(publish_old, replace, _PUBLISHING | {"replace"}),
    "an adoption": Scenario(
        publish_new, publish_new, _PUBLISHING, _BY_LINKS | {"write", "half a write"}
    ),
    "a hold of files": Scenario(publish_old, hold, {"replace", "unlink", "_call_syncfs"}),
    "a hold of what is missing": Scenario(prepare, hold, {"replace", "mkdir", "_call_syncfs"}),
    "a release": Scenario(hold_and_leave_the_files, release, {"unlink", "_call_syncfs"}),
    "a revocation": Scenario(leave_dead_attempts, revoke, {"rename", "unlink", "rmdir"}),
    "a sweep": Scenario(leave_dead_attempts, sweep, {"flock", "unlink", "rmdir"}),
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_killed_at_any_call_by_links_each_partition_is_as_before_or_as_after_and_converges(
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


def publish_old_and_ask(store: LocalPartitionStore) -> None:
    publish(store, GROUP, OLD)
    store.ask_to_restate(GROUP)


def test_killed_at_any_call_a_wish_to_restate_is_gone_only_where_its_partition_is_new(
    memory: Path, protocol: str
) -> None:
    publish_old_and_ask(a_store(memory / "before", protocol=protocol))
    stood = set()
    for number in itertools.count():
        root = memory / f"store-{number}"
        shutil.copytree(memory / "before", root)
        store = a_store(root, protocol=protocol)
        store.prepare()
        died_at = killed_at(number, lambda: replace(store))  # noqa: B023 - runs at once

        wishes = store.scan(FLIGHTS).restating
        for partition in GROUP:
            values = tuple(store.read(partition).column("value").to_pylist())
            assert values == NEW or partition in wishes, (number, died_at)
        stood.add(len(wishes))
        replace(store)
        assert not store.scan(FLIGHTS).restating
        shutil.rmtree(root)
        if died_at is None:
            break
    assert stood == {0, 1, 2, 3}


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_killed_at_any_call_by_markers_each_partition_is_as_before_or_as_after_and_converges(
    scenario: Scenario, memory: Path
) -> None:
    model = a_store(memory / "model", protocol="marker")
    scenario.before(model)
    states_before = states_of(model)
    if model.root.exists():
        shutil.copytree(model.root, memory / "before")
    scenario.act(model)
    after, states_after = names_below(model.root), states_of(model)
    reached = set()
    for number in itertools.count():
        root = memory / f"store-{number}"
        if (memory / "before").exists():
            shutil.copytree(memory / "before", root)
        store = a_store(root, protocol="marker")
        if (memory / "before").exists():
            store.prepare()  # its own crash points are those of the new store
        died_at = killed_at(number, lambda: scenario.act(store))  # noqa: B023 - runs at once

        for partition, state in states_of(store).items():
            assert state in (states_before[partition], states_after[partition]), (number, died_at)
        scenario.act(store)
        assert names_below(root) == after, (number, died_at)
        assert states_of(store) == states_after
        assert store.scan(FLIGHTS).strangers == ()
        assert not store.is_alive("")
        store.sweep()
        assert attempts_left(root) == []
        shutil.rmtree(root)
        if died_at is None:
            break
        reached.add(died_at)
    assert reached >= scenario.reached - scenario.by_links
    assert not reached & _BY_LINKS


def names_below(root: Path) -> list[str]:
    """Return the names of a store's files, whatever the numbers of their commits."""
    names = files_below(root).keys()
    return sorted(_NUMBERED.sub(r".#.\1", n) for n in names if not n.startswith(".backfill-store"))


def states_of(store: LocalPartitionStore) -> dict[Partition, str]:
    """Return for each partition ``missing``, ``held``, or the digest of its checked content."""
    states = dict.fromkeys(GROUP, "missing")
    if store.exists():
        inventory = store.scan(FLIGHTS)
        # What a commit has superseded is no longer needed, and not yet removed.
        assert all(re.search(r"\.[0-9a-f]{32}\.parquet$", path) for path in inventory.strangers)
        committed = inventory.committed - inventory.held
        states |= {p: store.verify(p).digest for p in GROUP if p in committed}
        states |= {p: "held" for p in GROUP if p in inventory.held}
    return states


def test_killed_at_any_call_a_store_has_its_old_identity_or_the_new_one(
    memory: Path, protocol: str
) -> None:
    both = [FLIGHTS, a_catalogue(name="trains")]
    reached = set()
    for number in itertools.count():
        root = memory / f"store-{number}"
        publish(a_store(root, protocol=protocol), [JFK])
        died_at = killed_at(
            number,
            lambda: LocalPartitionStore(root, both, commit_protocol=protocol).prepare(),  # noqa: B023 - at once
        )

        assert list(a_store(root, protocol=protocol).scan(FLIGHTS).committed) == [JFK]
        assert zones_of(root).keys() in ({"flights"}, {"flights", "trains"})
        LocalPartitionStore(root, both, commit_protocol=protocol).prepare()
        assert zones_of(root) == {"flights": "America/New_York", "trains": "America/New_York"}
        if died_at is None:
            break
        reached.add(died_at)
    placing = {"replace", "link"} if protocol == "link" else {"unlink"}
    assert reached >= {"open", "fsync", "mkdir", "flock"} | placing


def zones_of(root: Path) -> dict[str, str]:
    found = identity.read(root)
    assert found is not None
    return found.zones


def test_a_store_is_whole_after_thirty_crashes_in_a_row(memory: Path, protocol: str) -> None:
    store = a_store(memory / "store", protocol=protocol)
    publish(store, [JFK_DELAY])
    # Never more than 30 calls far: what each crash leaves is what the next one finds.
    for number in range(30):
        again = a_store(memory / "store", protocol=protocol)
        assert killed_at(number, lambda: publish_new(again)) is not None  # noqa: B023 - at once

    assert store.sweep() > 0
    publish_new(store)

    assert attempts_left(store.root) == []
    assert [store.read(p).column("value").to_pylist() for p in GROUP] == [[4, None]] * 3
