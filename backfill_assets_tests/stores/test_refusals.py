"""What a store refuses, and that a refusal leaves everything as it was."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.errors import (
    ForeignFileError,
    MissingPartitionError,
    SettingsError,
    StoreError,
    StoreFullError,
    StoreUnreadableError,
    StoreUnsupportedError,
)
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.formats import ParquetFormat
from backfill_assets.stores.tables import conform, record_of
from backfill_assets_tests.stores.children import (
    as_nobody,
    in_child,
    mount_tmpfs,
    own_mounts_work,
    with_own_mounts,
)
from backfill_assets_tests.stores.examples import (
    DEPARTURES,
    EWR,
    FLIGHTS,
    GROUP,
    JFK,
    LGA_NEXT_DAY,
    a_catalogue,
    a_store,
    attempts_left,
    files_below,
    no_links_and_no_renames,
    publish,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

needs_own_mounts = pytest.mark.skipif(
    not own_mounts_work(),
    reason="this system gives ordinary processes no mounts; a full disk is also tested without",
)


def values_of(store: LocalPartitionStore, partition: Any) -> list[Any]:
    values: list[Any] = store.read(partition).column("value").to_pylist()
    return values


def test_a_root_that_is_a_file_is_refused_and_left_alone(root: Path) -> None:
    root.write_text("mine")

    with pytest.raises(StoreUnreadableError, match="is a file"):
        publish(a_store(root), GROUP)
    with pytest.raises(StoreUnreadableError, match="is not a store"):
        a_store(root).scan(FLIGHTS)

    assert root.read_text() == "mine"


def test_a_root_that_is_a_link_to_nowhere_is_refused_naming_where_it_leads(root: Path) -> None:
    root.symlink_to("disk/store")  # of a disk that is not mounted

    with pytest.raises(StoreUnreadableError, match=r"is a link to disk/store, .* mount it"):
        publish(a_store(root), GROUP)

    assert not (root.parent / "disk").exists()


def test_a_folder_with_other_things_is_refused_and_nothing_is_written_there(root: Path) -> None:
    root.mkdir()
    (root / "letter.txt").write_text("mine")

    with pytest.raises(StoreUnreadableError, match=r"letter\.txt.*empty folder"):
        publish(a_store(root), GROUP)

    assert [path.name for path in root.iterdir()] == ["letter.txt"]


def test_a_root_that_is_not_there_is_no_empty_store_to_a_scan(root: Path) -> None:
    store = a_store(root)

    with pytest.raises(StoreUnreadableError, match="not mounted"):
        store.scan(FLIGHTS)
    with pytest.raises(StoreUnreadableError, match="not mounted"):
        store.read(JFK)
    with pytest.raises(StoreUnreadableError, match="not mounted"):
        store.release([JFK])

    assert not root.exists()


@pytest.mark.parametrize("verb", ["scan", "read", "verify", "publish", "hold"])
def test_a_root_that_lost_its_identity_is_an_error_and_not_missing_work(
    root: Path, verb: str
) -> None:
    publish(a_store(root), GROUP)
    (root / ".backfill-store.json").rename(root.parent / "moved.json")
    files = files_below(root)
    act: dict[str, Callable[[LocalPartitionStore], object]] = {
        "scan": lambda store: store.scan(FLIGHTS),
        "read": lambda store: store.read(FLIGHTS.partition("hour/delay", JFK.day, "JFK")),
        "verify": lambda store: store.verify(FLIGHTS.partition("hour/delay", JFK.day, "JFK")),
        "publish": lambda store: publish(store, GROUP),
        "hold": lambda store: store.hold(GROUP, "why"),
    }

    with pytest.raises(StoreUnreadableError, match=r"identity|not a store"):
        act[verb](a_store(root))

    assert files_below(root) == files


def test_a_root_that_goes_away_under_an_open_store_is_no_new_store(root: Path) -> None:
    store = a_store(root)
    publish(store, GROUP)
    root.rename(root.with_name("elsewhere"))  # as when its disk is unmounted
    root.mkdir()

    with pytest.raises(StoreUnreadableError, match="not mounted"):
        publish(store, GROUP)
    with pytest.raises(StoreUnreadableError, match="not mounted"):
        store.sweep()

    assert list(root.iterdir()) == []


def test_while_a_root_is_away_nobody_is_said_to_be_dead(root: Path, protocol: str) -> None:
    store = a_store(root, protocol=protocol)
    store.prepare()
    with store.attempt("run-1") as attempt:
        attempt.stage(JFK, rows_of(JFK))
        away = root.with_name("elsewhere")
        os.system(f"mv {root} {away}")  # noqa: S605 - renames are refused to this process
        for act in (store.is_alive, store.revoke):
            with pytest.raises(StoreUnreadableError, match="not mounted"):
                act("run-1")
        os.system(f"mv {away} {root}")  # noqa: S605 - as above
        assert store.is_alive("run-1")
        attempt.publish()

    assert list(store.scan(FLIGHTS).committed) == [JFK]


UNTYPED = '{"format_version": 1, "commit_protocol": "link", "file_format": "parquet", "zones": []}'


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"format_version": 1}', '{"a": 1}', UNTYPED]
)
def test_an_identity_that_is_damaged_is_an_error(root: Path, content: str) -> None:
    publish(a_store(root), GROUP)
    (root / ".backfill-store.json").write_text(content)

    for act in (lambda s: s.scan(FLIGHTS), lambda s: publish(s, GROUP)):
        with pytest.raises(StoreUnreadableError, match=r"\.backfill-store\.json.*backup"):
            act(a_store(root))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("format_version", 2, "format version 2"),
        ("commit_protocol", "marker", "commit_protocol is 'marker'"),
        ("file_format", "json", "file_format is 'json', and 'parquet' is asked for"),
    ],
)
def test_a_root_that_was_made_with_other_settings_is_refused(
    root: Path, name: str, value: Any, said: str
) -> None:
    publish(a_store(root), GROUP)
    path = root / ".backfill-store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    files = files_below(root)

    with pytest.raises(StoreUnsupportedError, match=said):
        a_store(root).scan(FLIGHTS)
    with pytest.raises(StoreUnsupportedError, match=said):
        publish(a_store(root), GROUP)

    assert files_below(root) == files


def test_a_changed_zone_is_refused_naming_both(root: Path) -> None:
    publish(a_store(root), GROUP)
    moved = a_catalogue(closing=ClosingPolicy(zone=ZoneInfo("Europe/Paris")))

    with pytest.raises(StoreUnsupportedError, match=r"America/New_York.*Europe/Paris"):
        LocalPartitionStore(root, [moved]).scan(moved)


def test_an_unknown_file_format_is_refused_naming_the_known_ones(root: Path) -> None:
    with pytest.raises(SettingsError, match="'csv': choose one of parquet, json"):
        a_store(root, "csv")


def test_a_root_that_cannot_be_written_is_refused_with_its_place(memory: Path) -> None:
    root = memory / "store"
    publish(a_store(root), [JFK])
    for folder in (root, root / ".attempts"):
        folder.chmod(0o555)

    with pytest.raises(StoreUnreadableError, match=rf"{root}.*Permission denied.*permissions"):
        as_nobody(lambda: publish(a_store(root), GROUP))

    assert as_nobody(lambda: values_of(a_store(root), JFK)) == [1, 2]  # reading still works
    root.chmod(0o755)
    (root / ".attempts").chmod(0o755)


def test_a_day_that_cannot_be_read_is_an_error_and_never_missing(memory: Path) -> None:
    root = memory / "store"
    publish(a_store(root), GROUP)
    day = Path(a_store(root).location(JFK)).parent
    day.chmod(0)

    def scan() -> None:
        a_store(root).scan(FLIGHTS)

    def read() -> None:
        a_store(root).read(JFK)

    def records() -> None:
        a_store(root).records([JFK])

    for act in (scan, read, records):
        with pytest.raises(StoreUnreadableError, match=r"2013-08-03.*Permission denied"):
            as_nobody(act)
    day.chmod(0o755)


def test_a_file_that_cannot_be_read_is_neither_missing_nor_corrupt(memory: Path) -> None:
    root = memory / "store"
    publish(a_store(root), [JFK])
    file = Path(a_store(root).location(JFK))
    file.chmod(0)

    with pytest.raises(StoreUnreadableError, match=r"JFK\.parquet: Permission denied"):
        as_nobody(lambda: a_store(root).verify(JFK))
    file.chmod(0o644)


def test_a_file_that_grows_too_large_is_refused_and_leaves_nothing(
    root: Path, protocol: str
) -> None:
    publish(a_store(root, protocol=protocol), [EWR], [1])
    files = files_below(root)

    def with_small_files_only() -> None:
        store = a_store(root, protocol=protocol)
        store.prepare()
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))
        with store.attempt("run") as attempt:
            attempt.stage(JFK, rows_of(JFK))
            attempt.stage(LGA_NEXT_DAY, rows_of(LGA_NEXT_DAY, range(10_000)))
            attempt.publish()

    with pytest.raises(StoreFullError, match=r"File too large.*Make room"):
        in_child(with_small_files_only)

    assert files_below(root) == files
    assert attempts_left(root) == []


@needs_own_mounts
def test_a_full_disk_stops_a_group_before_any_of_it_is_seen(root: Path, protocol: str) -> None:
    root.mkdir()

    def on_a_small_disk() -> Any:
        mount_tmpfs(root, "size=256k")
        store = a_store(root, protocol=protocol)
        publish(store, [EWR], [1])
        files = files_below(root)
        with pytest.raises(StoreFullError, match=r"No space left on device.*Make room"):
            publish(store, [JFK, LGA_NEXT_DAY], range(12_000))
        assert attempts_left(root) == []
        assert files_below(root) == files
        return [p.adopted for p in publish(store, GROUP, [1])]  # room again: it goes on

    assert with_own_mounts(on_a_small_disk) == [False, True, False]


@needs_own_mounts
def test_a_disk_without_room_for_the_second_folder_shows_nothing_of_the_first(root: Path) -> None:
    root.mkdir()

    def with_few_inodes() -> list[str]:
        mount_tmpfs(root, "size=1m,nr_inodes=24")
        store = a_store(root)
        store.prepare()
        with store.attempt("run") as attempt:
            for partition in (LGA_NEXT_DAY, JFK):
                attempt.stage(partition, rows_of(partition))
            free = os.statvfs(root).f_ffree
            # Left are four outer folders, and a day and a name, or two days: a link takes one too.
            for number in range(free - 6):
                (root / f".filler-{number}").mkdir()
            with pytest.raises(StoreFullError, match="No space left on device"):
                attempt.publish()
        return [path for path in files_below(root) if path.endswith(".parquet")]

    assert with_own_mounts(with_few_inodes) == []


@needs_own_mounts
def test_attempts_on_another_device_are_refused_when_the_store_is_opened(root: Path) -> None:
    (root / ".attempts").mkdir(parents=True)

    def with_attempts_elsewhere() -> None:
        mount_tmpfs(root / ".attempts", "size=1m")
        a_store(root).prepare()

    with pytest.raises(StoreUnsupportedError, match=r"its \.attempts folder is on another device"):
        with_own_mounts(with_attempts_elsewhere)

    assert files_below(root) == {}


@needs_own_mounts
def test_a_query_on_another_device_is_refused_and_never_copied(root: Path) -> None:
    store = a_store(root)
    store.prepare()
    folder = root.joinpath(*DEPARTURES.asset_path)
    folder.mkdir(parents=True)

    def with_a_query_elsewhere() -> None:
        mount_tmpfs(folder, "size=1m")
        try:
            publish(store, GROUP)
        finally:
            assert [path for path in folder.rglob("*") if path.is_file()] == []

    with pytest.raises(StoreUnsupportedError, match=rf"{folder}.*another device.*one file system"):
        with_own_mounts(with_a_query_elsewhere)

    assert attempts_left(root) == []


@needs_own_mounts
def test_a_query_on_another_device_is_refused_with_markers_too(root: Path, no_links: None) -> None:  # noqa: ARG001
    store = a_store(root, protocol="marker")
    store.prepare()
    folder = root.joinpath(*DEPARTURES.asset_path)
    folder.mkdir(parents=True)

    def with_a_query_elsewhere() -> None:
        mount_tmpfs(folder, "size=1m")
        try:
            publish(store, GROUP)
        finally:
            assert [path for path in folder.rglob("*") if path.is_file()] == []

    with pytest.raises(StoreUnsupportedError, match=rf"{folder}.*another device.*one file system"):
        with_own_mounts(with_a_query_elsewhere)


@needs_own_mounts
def test_a_disk_that_is_mounted_over_a_store_hides_nothing_silently(root: Path) -> None:
    store = a_store(root)
    publish(store, GROUP)

    def with_an_empty_disk_on_top() -> None:
        mount_tmpfs(root, "size=1m")
        store.scan(FLIGHTS)

    with pytest.raises(StoreUnreadableError, match="not mounted"):
        with_own_mounts(with_an_empty_disk_on_top)


def a_link_that_is_not_permitted(_source: Any, target: Any, **_: Any) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(target))


def a_link_that_is_not_supported(_source: Any, target: Any, **_: Any) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(target))


def a_link_that_copies(source: Any, target: Any, **_: Any) -> None:
    if Path(target).exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    shutil.copy(source, target)


def a_link_that_replaces(source: Any, target: Any, **_: Any) -> None:
    shutil.move(source, target)
    shutil.copy(target, source)


def a_rename_that_copies(source: Any, target: Any, **_: Any) -> None:
    shutil.copy(source, target)
    Path(source).unlink()


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "old"])
@pytest.mark.parametrize(
    ("call", "other", "said"),
    [
        ("link", a_link_that_is_not_permitted, "Operation not permitted"),
        ("link", a_link_that_is_not_supported, "Operation not supported"),
        ("link", a_link_that_copies, "a hard link makes a copy"),
        ("link", a_link_that_replaces, "a hard link makes a copy|a link replaces"),
        ("replace", a_rename_that_copies, "a rename makes a copy"),
    ],
)
def test_a_file_system_whose_links_or_renames_are_not_atomic_is_refused_when_opened(
    root: Path, call: str, other: Callable[..., None], said: str, *, is_new: bool
) -> None:
    if not is_new:
        publish(a_store(root), [JFK])
    files = files_below(root) if root.exists() else {}

    def on_that_file_system() -> None:
        setattr(os, call, other)
        publish(a_store(root), GROUP)

    with pytest.raises(StoreUnsupportedError, match=rf"{said}.*nothing was written"):
        in_child(on_that_file_system)

    assert files_below(root) == files
    assert attempts_left(root) == []


def a_foreign_file(target: Path) -> None:
    target.write_bytes(b"mine")


def an_empty_file(target: Path) -> None:
    target.write_bytes(b"")


def a_folder(target: Path) -> None:
    (target / "inside").mkdir(parents=True)


def a_symlink_to_a_file(target: Path) -> None:
    (target.parents[1] / "linked").write_bytes(b"mine")  # no stranger beside the link
    target.symlink_to("../linked")


def a_symlink_to_another_partitions_file(target: Path) -> None:
    target.symlink_to(target.parents[1] / LGA_NEXT_DAY.day.isoformat() / "LGA.parquet")


def a_dangling_symlink(target: Path) -> None:
    target.symlink_to("nowhere")


def a_symlink_to_itself(target: Path) -> None:
    target.symlink_to(target.name)


def a_file_of_another_partition(target: Path) -> None:
    shutil.copy(target.parents[1] / LGA_NEXT_DAY.day.isoformat() / "LGA.parquet", target)


def a_file_of_another_version(target: Path) -> None:
    rows = conform(JFK, rows_of(JFK))
    record = dataclasses.replace(record_of(JFK, rows), version=2)
    target.write_bytes(ParquetFormat().encode(rows, record))


def a_pipe(target: Path) -> None:
    os.mkfifo(target)


FOREIGN = [
    a_foreign_file,
    an_empty_file,
    a_folder,
    a_symlink_to_a_file,
    a_symlink_to_another_partitions_file,
    a_dangling_symlink,
    a_symlink_to_itself,
    a_file_of_another_partition,
    a_file_of_another_version,
    a_pipe,
]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda make: make.__name__)
def test_what_is_foreign_at_a_target_is_named_left_alone_and_stops_nothing_else(
    root: Path, foreign: Callable[[Path], None], *, replace: bool
) -> None:
    store = a_store(root)
    publish(store, [LGA_NEXT_DAY])
    target = Path(store.location(JFK))
    target.parent.mkdir(parents=True)
    foreign(target)
    before = target.lstat()

    with pytest.raises(ForeignFileError, match=r"JFK\.parquet is not ours to touch") as caught:
        publish(store, GROUP, replace=replace)

    assert [p.partition for p in caught.value.published] == [LGA_NEXT_DAY, EWR]
    after = target.lstat()
    assert (before.st_ino, before.st_size, before.st_mtime_ns) == (
        after.st_ino,
        after.st_size,
        after.st_mtime_ns,
    )
    assert attempts_left(root) == []
    with pytest.raises(StoreError):
        store.verify(JFK)


@pytest.mark.parametrize(
    "foreign",
    [
        a_folder,
        a_symlink_to_a_file,
        a_symlink_to_another_partitions_file,
        a_dangling_symlink,
        a_pipe,
    ],
)
def test_what_is_no_regular_file_is_not_committed_and_is_reported(
    root: Path, foreign: Callable[[Path], None]
) -> None:
    store = a_store(root)
    publish(store, [LGA_NEXT_DAY, EWR])
    foreign(Path(store.location(JFK)))

    inventory = store.scan(FLIGHTS)

    assert list(inventory.committed) == [LGA_NEXT_DAY, EWR]
    assert store.location(JFK) in inventory.strangers
    assert list(store.records([JFK, EWR])) == [EWR]
    with pytest.raises(MissingPartitionError):
        store.read(JFK)


def test_a_foreign_folder_or_link_survives_a_hold_and_its_release(root: Path) -> None:
    store = a_store(root)
    publish(store, [LGA_NEXT_DAY])
    target = Path(store.location(JFK))
    target.parent.mkdir()
    a_folder(target)

    store.hold([JFK], "why")
    store.release([JFK])

    assert (target / "inside").is_dir()


def a_file_for_a_day(day: Path) -> None:
    day.parent.mkdir(parents=True)
    day.write_text("mine")


def a_dangling_link_for_a_day(day: Path) -> None:
    day.parent.mkdir(parents=True)
    day.symlink_to("nowhere")


def a_file_for_the_category(day: Path) -> None:
    day.parents[2].mkdir(parents=True)
    day.parents[1].write_text("mine")


@pytest.mark.parametrize(
    "foreign", [a_file_for_a_day, a_dangling_link_for_a_day, a_file_for_the_category]
)
def test_a_file_where_a_folder_must_be_is_named_and_left_alone(
    root: Path, foreign: Callable[[Path], None]
) -> None:
    store = a_store(root)
    store.prepare()
    foreign(Path(store.location(JFK)).parent)
    other = FLIGHTS.partition("hour/delay", JFK.day, "JFK")

    with pytest.raises(ForeignFileError, match="not ours to touch") as caught:
        publish(store, [JFK, other])

    assert [p.partition for p in caught.value.published] == [other]
    inventory = store.scan(FLIGHTS)
    assert list(inventory.committed) == [other]
    assert inventory.strangers_count == 1
    with pytest.raises(MissingPartitionError):
        store.read(JFK)


IN_THE_WAY: dict[str, Callable[[LocalPartitionStore], object]] = {
    "flights/carrier/departures/v1/2013-08-03/JFK.hold": lambda s: s.hold([JFK], "why"),
    "flights/carrier/departures/v1/2013-08-03/JFK.restate": lambda s: s.ask_to_restate([JFK]),
    ".documents/flights/a.json": lambda s: s.documents.write("flights", {"a.json": "{}"}),
}


@pytest.mark.parametrize("path", IN_THE_WAY)
def test_a_folder_that_has_the_name_of_a_small_file_is_named_and_left_alone(
    root: Path, protocol: str, path: str
) -> None:
    store = a_store(root, protocol=protocol)
    publish(store, [JFK])
    (root / path / "inside").mkdir(parents=True)

    with pytest.raises(StoreUnreadableError, match=rf"{path}: .* move it away") as caught:
        IN_THE_WAY[path](store)

    assert str(root) in str(caught.value)
    assert (root / path / "inside").is_dir()
    assert list(store.scan(FLIGHTS).committed) == [JFK]
    assert store.hold_reason(JFK) is None
    publish(store, [JFK], [7], replace=True)  # it is no wish, and nothing of ours
    assert values_of(store, JFK) == [7]
    assert (root / path / "inside").is_dir()


FILES_IN_THE_WAY: list[tuple[str, Callable[[LocalPartitionStore], object]]] = [
    ("flights", lambda s: s.hold([JFK], "why")),
    ("flights/carrier/departures/v1/2013-08-03", lambda s: s.hold([JFK], "why")),
    ("flights/carrier/departures/v1/2013-08-03", lambda s: s.ask_to_restate([JFK])),
    (".documents", lambda s: s.documents.write("flights", {"a.json": "{}"})),
    (".documents", lambda s: s.documents.remove("flights", ["a.json"])),
    (".attempts", lambda s: s.hold([JFK], "why")),
    (".attempts", lambda s: publish(s, GROUP)),
]


@pytest.mark.parametrize(("path", "act"), FILES_IN_THE_WAY)
def test_a_file_where_a_folder_of_small_files_must_be_is_named_and_left_alone(
    root: Path, protocol: str, path: str, act: Callable[[LocalPartitionStore], object]
) -> None:
    a_store(root, protocol=protocol).prepare()
    if path == ".attempts":
        shutil.rmtree(root / path)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("mine")
    store = a_store(root, protocol=protocol)

    with pytest.raises(StoreUnreadableError, match=rf"{path}.*: .* move it away"):
        act(store)

    assert (root / path).read_text() == "mine"
    assert store.hold_reason(JFK) is None
    assert store.source_fingerprints([JFK]) == {}
    assert store.documents.names("flights") == []
    assert not store.is_alive("run")


def test_what_goes_from_a_target_while_it_is_looked_at_is_published_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store(root)
    publish(store, [JFK], [1])
    target = Path(store.location(JFK))
    link = os.link

    def taken_and_gone(source: str, name: str) -> None:
        try:
            link(source, name)
        except FileExistsError:
            target.unlink()  # somebody deletes it just now
            raise

    monkeypatch.setattr(os, "link", taken_and_gone)
    (published,) = publish(store, [JFK], [2])

    assert not published.adopted
    assert values_of(store, JFK) == [2]


def test_a_folder_that_is_removed_between_two_groups_is_made_again(root: Path) -> None:
    store = a_store(root)
    store.prepare()
    with store.attempt("run") as attempt:
        attempt.stage(EWR, rows_of(EWR))
        attempt.publish()
        shutil.rmtree(root / "flights")
        attempt.stage(JFK, rows_of(JFK))
        attempt.publish()

    assert list(store.scan(FLIGHTS).committed) == [JFK]


def test_a_write_that_the_types_refuse_names_the_partition_and_leaves_the_group_alone(
    root: Path,
) -> None:
    store = a_store(root)
    store.prepare()
    with store.attempt("run") as attempt:
        attempt.stage(EWR, rows_of(EWR))
        with pytest.raises(Exception, match="flights/carrier/departures/2013-08-03/JFK"):
            attempt.stage(JFK, pa.table({"carrier": ["C0"], "value": ["many"]}))
        attempt.publish()

    assert list(store.scan(FLIGHTS).committed) == [EWR]


def test_a_process_that_did_not_prepare_the_store_proves_it_before_it_writes(root: Path) -> None:
    publish(a_store(root), [JFK])

    with no_links_and_no_renames(), pytest.raises(StoreUnsupportedError, match="not supported"):
        a_store(root).attempt("run").__enter__()


def test_nothing_but_preparing_begins_a_store_where_one_was_lost(root: Path) -> None:
    store = a_store(root)

    lost = pytest.raises(StoreUnreadableError, match="is not a store, or is not mounted")
    with lost, store.attempt("run"):
        pass
    with pytest.raises(StoreUnreadableError, match="is not a store, or is not mounted"):
        store.hold([EWR], "why not")

    assert not root.exists()
