"""Late writers, live ones, dead ones, and many at once."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backfill_assets.core.errors import (
    ContentConflictError,
    ForeignFileError,
    StaleAttemptError,
    StoreFullError,
    StoreUnreadableError,
)
from backfill_assets.stores.files import durability
from backfill_assets.stores.files.attempts import AttemptFolder
from backfill_assets.stores.files.durability import Flusher
from backfill_assets_tests.stores.children import Gate, as_nobody, child, in_child
from backfill_assets_tests.stores.crash_points import stop_at_call
from backfill_assets_tests.stores.examples import (
    EWR,
    FLIGHTS,
    GROUP,
    JFK,
    JFK_DELAY,
    LGA_NEXT_DAY,
    a_store,
    an_attempt,
    attempts_left,
    contents_of,
    files_below,
    publish,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backfill_assets.core.partitions import Partition
    from backfill_assets.stores.files.local import LocalPartitionStore

PUBLISHERS = 6


class RevokedAfterItsFlush(Flusher):
    """Flushes, and then another process revokes the attempt."""

    def __init__(self, store: LocalPartitionStore, *, together: bool) -> None:
        super().__init__(str(store.root), together=together)
        self._store = store

    def flush(self, paths: Iterable[str]) -> None:
        super().flush(paths)
        assert in_child(lambda: self._store.revoke("run-1")) == 1


def values_of(store: LocalPartitionStore, partition: Partition) -> list[Any]:
    values: list[Any] = store.read(partition).column("value").to_pylist()
    return values


@pytest.mark.parametrize("together", [True, False], ids=["syncfs", "fsync"])
@pytest.mark.parametrize("replace", [False, True])
def test_an_attempt_that_is_revoked_after_its_last_check_publishes_nothing(
    root: Path, protocol: str, *, replace: bool, together: bool
) -> None:
    store = a_store(root, protocol=protocol)
    publish(store, [EWR], [7])
    before = contents_of(store)
    flusher = RevokedAfterItsFlush(store, together=together)

    with an_attempt(store, protocol, flusher) as attempt:
        for partition in GROUP:
            attempt.stage(partition, rows_of(partition))
        with pytest.raises(StaleAttemptError, match="revoked"):
            attempt.publish(replace=replace)
    flusher.close()

    assert contents_of(store) == before == {str(EWR): [7]}
    assert store.scan(FLIGHTS).strangers == ()


@pytest.mark.parametrize("together", [True, False], ids=["syncfs", "fsync"])
def test_publishing_without_syncfs_gives_the_same_files(
    root: Path, protocol: str, *, together: bool
) -> None:
    publish(a_store(root / "model", protocol=protocol), GROUP)
    store = a_store(root / "store", protocol=protocol)
    store.prepare()
    flusher = Flusher(str(store.root), together=together)

    with an_attempt(store, protocol, flusher) as attempt:
        for partition in GROUP:
            attempt.stage(partition, rows_of(partition))
        attempt.publish()
    flusher.close()

    assert files_below(store.root) == files_below(root / "model")


@pytest.mark.parametrize(
    ("code", "error"), [(errno.EIO, StoreUnreadableError), (errno.ENOSPC, StoreFullError)]
)
def test_what_a_device_could_not_make_durable_is_neither_seen_nor_reported(
    root: Path,
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    error: type[Exception],
) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()
    flusher = Flusher(str(store.root), together=True)

    def failing(_descriptor: int) -> int:
        ctypes.set_errno(code)
        return -1

    with an_attempt(store, protocol, flusher) as attempt:
        attempt.stage(JFK, rows_of(JFK))
        with monkeypatch.context() as patch:
            patch.setattr(durability, "_SYNCFS", failing)
            with pytest.raises(error, match="flushing"):
                attempt.publish()
    flusher.close()

    assert contents_of(store) == {}


def test_an_attempt_has_ended_before_anything_of_it_is_removed(
    root: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()
    with store.attempt("run-1") as attempt:
        attempt.stage(JFK, rows_of(JFK))
        with monkeypatch.context() as patch:
            # Whoever revokes it is killed, or the attempt writes on, so that its folder stays.
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            assert store.revoke("run-1") == 1
        with pytest.raises(StaleAttemptError, match="revoked"):
            attempt.publish()
        with pytest.raises(StaleAttemptError, match="revoked"):
            attempt.stage(EWR, rows_of(EWR))

    assert contents_of(store) == {}
    store.sweep()
    assert attempts_left(root) == []


def test_without_syncfs_what_is_foreign_in_the_way_of_one_file_stops_no_other(
    root: Path, protocol: str
) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()
    query_folder = root.joinpath(*JFK.query.asset_path)
    query_folder.mkdir(parents=True)
    (query_folder / "v1").write_text("mine")  # where the folder of all days must be
    flusher = Flusher(str(root), together=False)

    with an_attempt(store, protocol, flusher) as attempt:
        for partition in (JFK, JFK_DELAY):
            attempt.stage(partition, rows_of(partition))
        with pytest.raises(ForeignFileError, match="not ours to touch") as caught:
            attempt.publish()
    flusher.close()

    assert [p.partition for p in caught.value.published] == [JFK_DELAY]
    assert list(contents_of(store)) == [str(JFK_DELAY)]


def test_without_syncfs_every_file_and_folder_that_a_commit_needs_is_flushed(
    root: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store(root, protocol=protocol)
    publish(store, [EWR])  # to be adopted
    flusher = Flusher(str(root), together=False)
    flush, flushed = os.fsync, set()

    def recorded(descriptor: int) -> None:
        flushed.add(os.stat(descriptor).st_ino)
        flush(descriptor)

    with an_attempt(store, protocol, flusher) as attempt:
        for partition in (*GROUP, JFK_DELAY):
            attempt.stage(partition, rows_of(partition))
        monkeypatch.setattr(os, "fsync", recorded)
        assert [p.adopted for p in attempt.publish()] == [False, True, False, False]
    flusher.close()

    files = {path for path in root.joinpath("flights").rglob("*") if path.is_file()}
    if protocol == "link":  # what is adopted was durable before it had its name
        files -= {Path(store.location(EWR))}
    folders = {path.parent for path in files}
    above = Path(store.location(JFK_DELAY)).parents
    folders |= {above[1], above[2], above[3]}  # where a new folder has its name
    assert {path.stat().st_ino for path in files | folders} <= flushed


def test_without_syncfs_every_new_folder_is_flushed_up_to_the_one_that_stood(
    root: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()
    flusher = Flusher(str(root), together=False)
    flush, flushed = os.fsync, set()

    def recorded(descriptor: int) -> None:
        flushed.add(os.stat(descriptor).st_ino)
        flush(descriptor)

    with an_attempt(store, protocol, flusher) as attempt:
        attempt.stage(JFK, rows_of(JFK))
        monkeypatch.setattr(os, "fsync", recorded)
        attempt.publish()
    flusher.close()

    day = Path(store.location(JFK)).parent
    folders = [day, *day.parents[: day.parents.index(root) + 1]]
    assert [folder.name for folder in folders if folder.stat().st_ino not in flushed] == []


def test_a_wish_to_restate_stands_until_the_new_content_is_durable(
    root: Path, protocol: str
) -> None:
    store = a_store(root, protocol=protocol)
    publish(store, [JFK], [1])
    store.ask_to_restate([JFK])
    wished = []

    class Watched(Flusher):
        def flush(self, paths: Iterable[str]) -> None:
            wished.append(bool(store.scan(FLIGHTS).restating))
            super().flush(paths)

    flusher = Watched(str(root))
    with an_attempt(store, protocol, flusher) as attempt:
        attempt.stage(JFK, rows_of(JFK, [2]))
        attempt.publish(replace=True)
    flusher.close()

    assert wished == [True, True]  # before the switch, and after it
    assert not store.scan(FLIGHTS).restating


def test_a_hold_is_whole_before_it_has_its_name_and_stands_before_the_data_goes(
    root: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store(root, protocol=protocol)
    publish(store, [JFK])
    flush, seen = Flusher.flush, []

    def watched(flusher: Flusher, paths: Iterable[str]) -> None:
        inventory = store.scan(FLIGHTS)
        seen.append((len(inventory.held), len(inventory.committed)))
        flush(flusher, paths)

    monkeypatch.setattr(Flusher, "flush", watched)
    store.hold([JFK], "why")
    assert seen == ([(0, 1)] if protocol == "link" else [(1, 1)]) + [(1, 1), (1, 0)]

    seen.clear()
    store.release([JFK])
    assert seen == [(1, 0), (0, 0)]


@pytest.mark.parametrize("together", [True, False], ids=["syncfs", "fsync"])
def test_an_attempt_that_was_revoked_before_its_flush_is_told_so(
    root: Path, protocol: str, *, together: bool
) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()
    flusher = Flusher(str(root), together=together)

    with an_attempt(store, protocol, flusher) as attempt:
        attempt.stage(JFK, rows_of(JFK))
        store.revoke("run-1")
        with pytest.raises(StaleAttemptError, match="revoked"):
            attempt.publish()
    flusher.close()


# Asleep between its first and its second name, long past every check of its own.
SLEEPS = {
    "before its link": ("link", "link", ".parquet"),
    "before its replacement": ("link", "replace", ".parquet"),
    "before its claim": ("marker", "open", ".commit"),
    "after its claim": ("marker", "open and then", ".commit"),
    "before its marker": ("marker", "write", '{"marker":'),
}
MARKER_SLEEPS = [sleep for sleep, (protocol, _, _) in SLEEPS.items() if protocol == "marker"]


@pytest.mark.parametrize(
    ("sleep", "replace"),
    [
        ("before its link", False),
        ("before its replacement", True),
        *((sleep, replace) for sleep in MARKER_SLEEPS for replace in (False, True)),
    ],
)
def test_a_late_first_attempt_changes_nothing_after_its_successor_has_published(
    root: Path, sleep: str, request: pytest.FixtureRequest, *, replace: bool
) -> None:
    protocol, call, what = SLEEPS[sleep]
    if protocol == "marker":
        request.getfixturevalue("no_links")
    store = a_store(root, protocol=protocol)
    store.prepare()
    if replace:
        publish(store, GROUP, [0])

    def late() -> None:
        stop_at_call(2, call, what)
        publish(a_store(root, protocol=protocol), GROUP, [1], replace=replace, name="run-1")

    with child(late) as first:
        first.wait_until_stopped()
        assert store.is_alive("run-1")
        assert store.revoke("run-1") == 1
        publish(store, GROUP, [2], replace=True, name="run-2")
        first.go_on()
        with pytest.raises(StaleAttemptError):
            first.answer()

    assert [values_of(store, partition) for partition in GROUP] == [[2], [2], [2]]
    assert store.scan(FLIGHTS).strangers == ()
    assert store.sweep() == 0
    assert attempts_left(root) == []


@pytest.mark.parametrize("sleep", ["before its link", "before its claim", "after its claim"])
def test_what_a_revoked_attempt_published_before_stays_and_is_whole(
    root: Path, sleep: str, request: pytest.FixtureRequest
) -> None:
    protocol, call, what = SLEEPS[sleep]
    if protocol == "marker":
        request.getfixturevalue("no_links")
    store = a_store(root, protocol=protocol)
    store.prepare()

    def late() -> None:
        stop_at_call(2, call, what)
        publish(a_store(root, protocol=protocol), GROUP, [1], name="run-1")

    with child(late) as first:
        first.wait_until_stopped()
        store.revoke("run-1")
        first.go_on()
        with pytest.raises(StaleAttemptError):
            first.answer()

    assert list(store.scan(FLIGHTS).committed) == [LGA_NEXT_DAY]
    assert store.verify(LGA_NEXT_DAY).rows == 1
    assert [p.adopted for p in publish(store, GROUP, [1])] == [True, False, False]


@pytest.mark.usefixtures("no_links")
def test_an_attempt_that_is_revoked_between_its_check_and_its_marker_commits_that_one_only(
    root: Path,
) -> None:
    store = a_store(root, protocol="marker")
    store.prepare()

    def late() -> None:
        stop_at_call(2, "write", '{"marker":')
        publish(a_store(root, protocol="marker"), GROUP, [1], name="run-1")

    with child(late) as first:
        first.wait_until_stopped()
        store.revoke("run-1")
        assert list(contents_of(store)) == [str(LGA_NEXT_DAY)]
        first.go_on()
        with pytest.raises(StaleAttemptError):
            first.answer()

    assert contents_of(store) == {str(LGA_NEXT_DAY): [1], str(EWR): [1]}  # the remaining window


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
def test_the_attempt_of_a_live_process_is_not_swept(
    root: Path, protocol: str, *, is_stopped: bool
) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()
    gate = Gate()

    def live() -> list[Any]:
        with a_store(root, protocol=protocol).attempt("run-1") as attempt:
            attempt.stage(JFK, rows_of(JFK))
            os.kill(os.getpid(), signal.SIGSTOP)
            gate.wait()
            return [p.partition for p in attempt.publish()]

    with child(live) as writer:
        writer.wait_until_stopped()
        if not is_stopped:
            writer.go_on()
        assert store.is_alive("run-1")
        assert store.sweep() == 0
        assert len(attempts_left(root)) == 1
        writer.go_on()
        gate.open()
        assert writer.answer() == [JFK]

    assert not store.is_alive("run-1")


def test_an_attempt_is_dead_as_soon_as_its_process_is_killed(root: Path, protocol: str) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()

    def live() -> None:
        with a_store(root, protocol=protocol).attempt("run-1"):
            os.kill(os.getpid(), signal.SIGSTOP)

    with child(live) as writer:
        writer.wait_until_stopped()
        assert store.is_alive("run-1")
        writer.kill()
        assert not store.is_alive("run-1")

    assert store.sweep() == 1
    assert attempts_left(root) == []


def test_two_hundred_dead_attempts_are_swept_and_the_live_one_among_them_is_not(
    root: Path, protocol: str
) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()

    def crash() -> None:
        with ExitStack() as stack:
            for number in range(200):
                attempt = stack.enter_context(store.attempt(f"run-{number}"))
                attempt.stage(JFK, rows_of(JFK))
            os.kill(os.getpid(), signal.SIGKILL)

    with child(crash) as crashed, store.attempt("live") as live:
        assert crashed.exit_code() == -signal.SIGKILL
        live.stage(JFK, rows_of(JFK))
        assert len(attempts_left(root)) == 201
        assert store.sweep() == 200
        assert attempts_left(root) == [live.name]
        live.publish()

    assert attempts_left(root) == []


def test_an_attempt_that_this_user_cannot_look_into_counts_as_alive_and_is_not_swept(
    memory: Path, protocol: str
) -> None:
    root = memory / "store"
    store = a_store(root, protocol=protocol)
    store.prepare()
    folder = root / ".attempts"
    folder.chmod(0o777)
    for lock in folder.glob(".*.lock"):
        lock.chmod(0o666)

    with store.attempt("run-1") as attempt:
        directory = folder / attempt.name
        directory.chmod(0o777)
        attempt.stage(JFK, rows_of(JFK))
        (directory / "lock").chmod(0)
        assert as_nobody(
            lambda: (
                a_store(root, protocol=protocol).is_alive("run-1"),
                a_store(root, protocol=protocol).sweep(),
            )
        ) == (
            True,
            0,
        )
        attempt.publish()

    assert store.verify(JFK).rows == 2


def test_what_this_user_may_not_remove_is_not_counted_as_removed(
    memory: Path, protocol: str
) -> None:
    root = memory / "store"
    store = a_store(root, protocol=protocol)
    store.prepare()
    dead = root / ".attempts/run-1.0123456789ab"
    dead.mkdir()
    (dead / "lock").touch()
    (root / ".attempts/.proof.lock").touch()
    for lock in (root / ".attempts").glob(".*.lock"):
        lock.chmod(0o666)

    assert as_nobody(lambda: a_store(root, protocol=protocol).sweep()) == 0
    assert dead.is_dir()
    assert store.sweep() == 1


def test_where_locks_do_not_work_only_an_attempt_older_than_the_longest_run_is_swept(
    root: Path, protocol: str
) -> None:
    def sweep_without_locks() -> list[int]:
        import fcntl

        fcntl.flock = lambda *_: None  # every lock is granted, as on some network file systems
        store = a_store(root, protocol=protocol)
        store.prepare()
        with store.attempt("run-1") as attempt:
            directory = root / ".attempts" / attempt.name
            young = AttemptFolder(root, longest_run=timedelta(seconds=60)).sweep()
            minute_ago = directory.stat().st_mtime - 61
            os.utime(directory, (minute_ago, minute_ago))
            return [young, AttemptFolder(root, longest_run=timedelta(seconds=60)).sweep()]

    assert in_child(sweep_without_locks) == [0, 1]


def test_revoking_touches_no_lock_of_the_store_itself(root: Path, protocol: str) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()
    with store.attempt("run-1"):
        assert store.revoke("") == 1

    assert (root / ".attempts" / ".births.lock").is_file()


def test_attempts_of_many_processes_survive_the_sweeps_of_the_others(
    root: Path, protocol: str
) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()
    gate = Gate()

    def open_and_sweep() -> None:
        gate.wait()
        for number in range(20):
            with store.attempt("run") as attempt:
                store.sweep()
                attempt.stage(JFK, rows_of(JFK, [number]))
                store.sweep()
                attempt.publish(replace=True)  # it would be stale had anybody swept it

    with ExitStack() as stack:
        children = [stack.enter_context(child(open_and_sweep)) for _ in range(4)]
        gate.open()
        for running in children:
            running.answer()

    assert values_of(store, JFK) == [19]
    store.sweep()
    assert attempts_left(root) == []


def test_of_many_publishers_of_the_same_content_one_links_and_the_others_adopt(
    root: Path, protocol: str
) -> None:
    gate = Gate()

    def publisher() -> list[bool]:
        gate.wait()
        return [p.adopted for p in publish(a_store(root, protocol=protocol), GROUP)]

    with ExitStack() as stack:
        children = [stack.enter_context(child(publisher)) for _ in range(PUBLISHERS)]
        gate.open()
        answers = [c.answer() for c in children]

    for adopted in zip(*answers, strict=True):
        assert sorted(adopted) == [False] + [True] * (PUBLISHERS - 1)


def test_of_many_publishers_of_other_content_one_links_and_the_others_are_refused(
    root: Path, protocol: str
) -> None:
    gate = Gate()
    a_store(root, protocol=protocol).prepare()

    def publisher(number: int) -> list[Partition]:
        gate.wait()
        with a_store(root, protocol=protocol).attempt(f"run-{number}") as attempt:
            for partition in GROUP:
                attempt.stage(partition, rows_of(partition, [number]))
            try:
                return [p.partition for p in attempt.publish()]
            except ContentConflictError as refusal:
                return [p.partition for p in refusal.published]

    with ExitStack() as stack:
        children = [stack.enter_context(child(partial(publisher, n))) for n in range(PUBLISHERS)]
        gate.open()
        published = [c.answer() for c in children]

    store = a_store(root, protocol=protocol)
    for partition in GROUP:
        winners = [n for n in range(PUBLISHERS) if partition in published[n]]
        assert values_of(store, partition) == winners  # exactly one
        store.verify(partition)


def test_replacements_by_many_processes_leave_one_of_them_whole(root: Path, protocol: str) -> None:
    gate = Gate()
    publish(a_store(root, protocol=protocol), GROUP, [-1])

    def replacer(number: int) -> None:
        gate.wait()
        for _ in range(5):
            publish(a_store(root, protocol=protocol), GROUP, [number], replace=True)

    with ExitStack() as stack:
        children = [stack.enter_context(child(partial(replacer, n))) for n in range(PUBLISHERS)]
        gate.open()
        for running in children:
            running.answer()

    store = a_store(root, protocol=protocol)
    for partition in GROUP:
        assert values_of(store, partition) in [[n] for n in range(PUBLISHERS)]
        store.verify(partition)
    assert attempts_left(root) == []


def test_stores_that_are_begun_at_once_agree_on_one_identity(root: Path, protocol: str) -> None:
    gate = Gate()

    def begin() -> bool:
        gate.wait()
        store = a_store(root, protocol=protocol)
        store.prepare()
        return store.exists()

    with ExitStack() as stack:
        children = [stack.enter_context(child(begin)) for _ in range(PUBLISHERS)]
        gate.open()
        assert [c.answer() for c in children] == [True] * PUBLISHERS

    identities = files_below(root)
    if protocol == "link":
        assert identities.keys() == {".backfill-store.json"}
    # By markers some may write another one in the moment in which the first is half-written.
    assert len(set(identities.values())) == 1
    assert all(name.startswith(".backfill-store.") for name in identities)
