"""Markers: a partition is committed by a whole one whose data stands, and by nothing else."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies

from backfill_assets.core.catalogue import Category, Unit, ValueType
from backfill_assets.core.errors import (
    CorruptPartitionError,
    ForeignFileError,
    MissingPartitionError,
    SettingsError,
    StoreUnsupportedError,
)
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.stores.files.durability import Flusher
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.stores.children import Gate, child, in_child
from backfill_assets_tests.stores.crash_points import stop_at_call
from backfill_assets_tests.stores.examples import (
    EWR,
    FLIGHTS,
    GROUP,
    JFK,
    LGA_NEXT_DAY,
    STORES,
    TICK_SECONDS,
    a_catalogue,
    a_store,
    an_attempt,
    attempts_left,
    contents_of,
    files_below,
    no_links_and_no_renames,
    publish,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("no_links")

DAY_FOLDER = "flights/carrier/departures/v1/2013-08-03"
MARKER = "JFK.1.commit"


@pytest.fixture
def store(root: Path) -> LocalPartitionStore:
    """Return a prepared store that commits by markers."""
    store = a_store(root, protocol="marker")
    store.prepare()
    return store


def names_of(store: LocalPartitionStore, unit: str = "JFK") -> list[str]:
    """Return the names of a unit's files on the day, markers first."""
    names = sorted(path.name for path in (store.root / DAY_FOLDER).glob(f"{unit}.*"))
    return sorted(names, key=lambda name: name.endswith(".parquet"))


def test_a_marker_says_which_bytes_it_commits_and_checks_itself(store: LocalPartitionStore) -> None:
    publish(store, [JFK], [1, 2])

    (data,) = (store.root / DAY_FOLDER).glob("*.parquet")
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    assert store.location(JFK) == str(data)
    assert data.name == f"JFK.1.{digest[:32]}.parquet"
    text = (store.root / DAY_FOLDER / MARKER).read_bytes()
    body, end = text.split(b',"checksum":')
    assert json.loads(text) == {
        "marker": 1,
        "number": 1,
        "data": data.name,
        "size": data.stat().st_size,
        "sha256": digest,
        "checksum": hashlib.sha256(body).hexdigest(),
    }
    assert end.endswith(b'"}\n')


def test_a_replacement_is_the_next_number_and_only_the_marker_before_it_stays(
    store: LocalPartitionStore,
) -> None:
    for number in range(1, 6):
        publish(store, [JFK], [number], replace=True)

    (data,) = (store.root / DAY_FOLDER).glob("*.parquet")
    assert data.name.startswith("JFK.5.")
    assert names_of(store) == ["JFK.4.commit", "JFK.5.commit", data.name]
    assert contents_of(store) == {str(JFK): [5]}
    assert store.scan(FLIGHTS).strangers == ()


def test_a_marker_that_is_cut_short_at_any_length_commits_nothing_and_is_passed_over(
    store: LocalPartitionStore,
) -> None:
    publish(store, [JFK, EWR])
    marker = store.root / DAY_FOLDER / MARKER
    whole = marker.read_bytes()
    for length in range(len(whole)):
        # Also where the disk kept the length and lost the end.
        for text in (whole[:length], whole[:length].ljust(len(whole), b"\0")):
            marker.write_bytes(text)

            inventory = store.scan(FLIGHTS)

            assert list(inventory.committed) == [EWR], text
            assert inventory.strangers == ()
            assert list(store.records(GROUP)) == [EWR]
            with pytest.raises(MissingPartitionError, match="is not committed"):
                store.read(JFK)
    marker.write_bytes(whole)
    assert list(store.scan(FLIGHTS).committed) == [EWR, JFK]
    marker.write_bytes(whole[:-1])

    assert [p.adopted for p in publish(store, [JFK, EWR])] == [False, True]

    assert [name.rpartition(".")[0][:5] for name in names_of(store)] == ["JFK.2", "JFK.2"]
    assert contents_of(store) == {str(EWR): [1, 2], str(JFK): [1, 2]}


def test_no_flipped_bit_of_a_marker_commits_anything_else(store: LocalPartitionStore) -> None:
    publish(store, [JFK], [1])
    publish(store, [JFK], [2], replace=True)
    marker = store.root / DAY_FOLDER / "JFK.2.commit"
    whole = marker.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        marker.write_bytes(damaged)
        assert contents_of(store) == {}, position

    publish(store, [JFK], [2])
    assert contents_of(store) == {str(JFK): [2]}


def test_a_replacement_whose_marker_is_cut_short_leaves_the_old_content(
    store: LocalPartitionStore, memory: Path
) -> None:
    other = a_store(memory / "other", protocol="marker")
    for each in (store, other):
        publish(each, [JFK], [1])
    publish(other, [JFK], [2], replace=True)
    for name in names_of(other):
        if name.startswith("JFK.2."):
            content = (other.root / DAY_FOLDER / name).read_bytes()
            short = content if name.endswith(".parquet") else content[:-20]
            (store.root / DAY_FOLDER / name).write_bytes(short)

    assert contents_of(store) == {str(JFK): [1]}

    publish(store, [JFK], [2], replace=True)
    assert contents_of(store) == {str(JFK): [2]}
    assert [name for name in names_of(store) if name.endswith(".parquet")] == [
        Path(store.location(JFK)).name
    ]


def garbage(marker: Path) -> None:
    marker.write_bytes(b"mine")


def json_of_another_kind(marker: Path) -> None:
    marker.write_text('{"data": "JFK.parquet"}')


def a_folder(marker: Path) -> None:
    (marker / "inside").mkdir(parents=True)


def a_symlink_to_the_marker_of_another_unit(marker: Path) -> None:
    marker.symlink_to("EWR.1.commit")


def the_marker_of_another_unit(marker: Path) -> None:
    marker.write_bytes(marker.with_name("EWR.1.commit").read_bytes())


def a_pipe(marker: Path) -> None:
    os.mkfifo(marker)


@pytest.mark.parametrize(
    "foreign",
    [
        garbage,
        json_of_another_kind,
        a_folder,
        a_symlink_to_the_marker_of_another_unit,
        the_marker_of_another_unit,
        a_pipe,
    ],
)
def test_what_only_has_a_markers_name_is_reported_left_alone_and_passed_over(
    store: LocalPartitionStore, foreign: Callable[[Path], None]
) -> None:
    publish(store, [EWR])
    marker = store.root / DAY_FOLDER / MARKER
    foreign(marker)
    before = marker.lstat()

    inventory = store.scan(FLIGHTS)
    assert list(inventory.committed) == [EWR]
    assert inventory.strangers == (str(marker),)

    publish(store, GROUP)
    publish(store, GROUP, [9], replace=True)
    store.hold([JFK], "doubtful")
    store.release([JFK])

    after = marker.lstat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert contents_of(store) == {str(LGA_NEXT_DAY): [9], str(EWR): [9]}
    assert store.scan(FLIGHTS).strangers == (str(marker),)


def test_what_is_no_file_at_the_place_of_the_data_is_refused_and_left_alone(
    store: LocalPartitionStore, memory: Path
) -> None:
    model = a_store(memory / "model", protocol="marker")
    publish(model, [JFK])
    data = store.root / Path(model.location(JFK)).relative_to(model.root)
    (data / "inside").mkdir(parents=True)

    with pytest.raises(ForeignFileError, match="not ours to touch") as caught:
        publish(store, GROUP)

    assert [p.partition for p in caught.value.published] == [LGA_NEXT_DAY, EWR]
    assert (data / "inside").is_dir()
    assert store.scan(FLIGHTS).strangers == (str(data),)


def test_a_partition_whose_data_was_deleted_is_missing_and_made_again(
    store: LocalPartitionStore,
) -> None:
    publish(store, [JFK, EWR])
    Path(store.location(JFK)).unlink()

    assert list(store.scan(FLIGHTS).committed) == [EWR]
    assert list(store.records(GROUP)) == [EWR]
    with pytest.raises(MissingPartitionError):
        store.verify(JFK)

    assert [p.adopted for p in publish(store, [JFK, EWR])] == [False, True]
    assert contents_of(store) == {str(EWR): [1, 2], str(JFK): [1, 2]}


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[::-1], lambda _: b""])
@pytest.mark.parametrize("replace", [False, True])
def test_data_that_is_not_what_its_marker_says_is_corrupt_and_is_mended(
    store: LocalPartitionStore, damage: Callable[[bytes], bytes], *, replace: bool
) -> None:
    publish(store, [JFK])
    data = Path(store.location(JFK))
    data.write_bytes(damage(data.read_bytes()))

    assert list(store.scan(FLIGHTS).committed) == [JFK]  # a scan asks for a whole marker
    for verb in (store.read, store.verify):
        with pytest.raises(CorruptPartitionError, match=rf"{data.name} is not what its marker"):
            verb(JFK)

    publish(store, [JFK], replace=replace)
    assert contents_of(store) == {str(JFK): [1, 2]}


def test_a_data_file_that_a_crash_left_half_written_is_completed(
    store: LocalPartitionStore,
) -> None:
    publish(store, [JFK])
    data, marker = Path(store.location(JFK)), store.root / DAY_FOLDER / MARKER
    whole = data.read_bytes()
    marker.unlink()
    for left in (b"", whole[:100], whole, whole + b"more"):
        data.write_bytes(left)
        assert list(store.scan(FLIGHTS).committed) == []
        assert store.scan(FLIGHTS).strangers == ()

        publish(store, [JFK])

        assert data.read_bytes() == whole
        assert names_of(store) == [MARKER, data.name]
        marker.unlink()


def test_superseded_data_that_a_crash_left_is_reported_and_removed_by_the_next_commit(
    store: LocalPartitionStore,
) -> None:
    publish(store, [JFK], [1])
    old = Path(store.location(JFK))
    content = old.read_bytes()
    publish(store, [JFK], [2], replace=True)
    old.write_bytes(content)

    assert store.scan(FLIGHTS).strangers == (str(old),)
    assert contents_of(store) == {str(JFK): [2]}

    assert publish(store, [JFK], [2])[0].adopted
    assert store.scan(FLIGHTS).strangers == ()
    assert not old.exists()


def test_a_hold_removes_every_marker_so_that_no_older_one_counts_afterwards(
    store: LocalPartitionStore,
) -> None:
    publish(store, [JFK], [1])
    publish(store, [JFK], [2], replace=True)

    store.hold([JFK], "first reason, a long one")
    store.hold([JFK], "second")

    assert store.hold_reason(JFK) == "second"
    assert names_of(store) == ["JFK.hold"]
    store.release([JFK])
    assert contents_of(store) == {}
    publish(store, [JFK], [3])
    assert contents_of(store) == {str(JFK): [3]}


def test_a_hold_that_was_cut_short_holds_all_the_same(store: LocalPartitionStore) -> None:
    publish(store, [JFK])
    (store.root / DAY_FOLDER / "JFK.hold").write_text('{"partition": "fli')

    assert list(store.scan(FLIGHTS).held) == [JFK]
    assert "gives no reason" in str(store.hold_reason(JFK))
    with pytest.raises(MissingPartitionError, match="is held"):
        store.read(JFK)


def test_a_wish_of_a_clock_that_was_fast_is_fulfilled_by_the_second_run(
    store: LocalPartitionStore,
) -> None:
    publish(store, [JFK])
    store.ask_to_restate([JFK])
    wish = Path(store._restate_file(JFK))
    an_hour_on = wish.stat().st_mtime + 3600
    os.utime(wish, (an_hour_on, an_hour_on))

    publish(store, [JFK], [3], replace=True)
    assert list(store.scan(FLIGHTS).restating) == [JFK]
    time.sleep(TICK_SECONDS)
    publish(store, [JFK], [3], replace=True)
    assert list(store.scan(FLIGHTS).restating) == []


def test_superseded_data_goes_only_when_the_new_marker_is_durable(
    store: LocalPartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, [JFK])
    old = store.location(JFK)
    flushed: set[int] = set()
    durable_when_removed: list[bool] = []
    fsync, unlink = os.fsync, os.unlink

    def recorded(descriptor: int) -> None:
        flushed.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def removing(path: Any, **options: Any) -> None:
        if str(path) == old:
            folder = Path(old).parent
            needed = {folder.stat().st_ino, (folder / "JFK.2.commit").stat().st_ino}
            durable_when_removed.append(needed <= flushed)
        unlink(path, **options)

    flusher = Flusher(str(store.root), together=False)
    with an_attempt(store, "marker", flusher) as attempt:
        attempt.stage(JFK, rows_of(JFK, [3]))
        monkeypatch.setattr(os, "fsync", recorded)
        monkeypatch.setattr(os, "unlink", removing)
        attempt.publish(replace=True)
    flusher.close()

    assert durable_when_removed == [True]


def test_a_wish_to_restate_stands_until_it_is_fulfilled(store: LocalPartitionStore) -> None:
    publish(store, [JFK, EWR])
    store.ask_to_restate([JFK])

    assert list(store.scan(FLIGHTS).restating) == [JFK]
    publish(store, [JFK])
    assert list(store.scan(FLIGHTS).restating) == [JFK]
    publish(store, [JFK], [3], replace=True)
    assert list(store.scan(FLIGHTS).restating) == []


def test_a_store_is_refused_by_the_other_protocol(store: LocalPartitionStore, memory: Path) -> None:
    publish(store, [JFK])
    files = files_below(store.root)

    with pytest.raises(StoreUnsupportedError, match="is 'marker', and 'link' is asked for"):
        a_store(store.root).scan(FLIGHTS)

    assert files_below(store.root) == files
    with pytest.raises(SettingsError, match="'rename': choose one of link, marker"):
        a_store(memory / "other", protocol="rename")


def test_where_nothing_can_be_linked_the_refusal_names_the_marker_protocol(root: Path) -> None:
    with pytest.raises(
        StoreUnsupportedError,
        match=r"not supported.*nothing was written.*BACKFILL_COMMIT_PROTOCOL=marker",
    ):
        publish(a_store(root), GROUP)

    assert files_below(root) == {}
    publish(a_store(root, protocol="marker"), GROUP)
    assert len(contents_of(a_store(root, protocol="marker"))) == 3


@pytest.mark.parametrize("content", [b"", b"{", b'{\n  "commit_protocol": "mar'])
def test_an_identity_that_a_crash_cut_short_is_no_store_yet_and_is_begun_again(
    root: Path, content: bytes
) -> None:
    root.mkdir()
    (root / ".backfill-store.json").write_bytes(content)
    store = a_store(root, protocol="marker")

    assert not store.exists()
    publish(store, [JFK])

    assert a_store(root, protocol="marker").verify(JFK).rows == 2
    assert sorted(n for n in files_below(root) if "store" in n) == [
        ".backfill-store.2.json",
        ".backfill-store.json",
    ]


def a_creation_that_replaces(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
    return os_open(path, flags & ~os.O_EXCL, *arguments, **named)


def a_creation_that_is_refused(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
    if flags & os.O_EXCL and "probe" in str(path):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(path))
    return os_open(path, flags, *arguments, **named)


os_open = os.open


@pytest.mark.parametrize(
    ("creation", "said"),
    [
        (a_creation_that_replaces, "a file that exists is created again"),
        (a_creation_that_is_refused, "not supported"),
    ],
)
def test_a_file_system_that_creates_a_name_twice_is_refused_when_opened(
    root: Path, creation: Callable[..., int], said: str
) -> None:
    def on_that_file_system() -> None:
        os.open = creation
        publish(a_store(root, protocol="marker"), GROUP)

    with pytest.raises(StoreUnsupportedError, match=rf"{said}.*nothing was written"):
        in_child(on_that_file_system)

    assert files_below(root) == {}
    assert attempts_left(root) == []


class Listing(list[os.DirEntry[str]]):
    """What one pass over a folder returns."""

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        return


@pytest.mark.parametrize("verb", ["scan", "read", "records"])
def test_a_look_that_misses_both_sides_of_a_replacement_looks_again(
    store: LocalPartitionStore, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    publish(store, [JFK], [1])
    scandir, looks = os.scandir, []

    def slow(path: Any) -> Any:
        if not str(path).endswith(DAY_FOLDER):
            return scandir(path)
        looks.append(path)
        if len(looks) > 1:
            return scandir(path)
        # Past the place of the new names before they come, at that of the old data when it is gone.
        with scandir(path) as entries:
            before = {entry.name for entry in entries}
        in_child(lambda: publish(store, [JFK], [2], replace=True) and None)
        with scandir(path) as entries:
            return Listing(entry for entry in entries if entry.name in before)

    monkeypatch.setattr(os, "scandir", slow)

    if verb == "scan":
        assert list(store.scan(FLIGHTS).committed) == [JFK]
    elif verb == "read":
        assert store.read(JFK).column("value").to_pylist() == [2]
    else:
        assert list(store.records([JFK])) == [JFK]
    assert len(looks) > 1


@pytest.mark.parametrize("verb", ["scan", "read", "records"])
def test_a_look_that_falls_asleep_between_two_markers_looks_again(
    store: LocalPartitionStore, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    publish(store, [JFK], [1])
    gate, own_open, reads = Gate(), os.open, []

    def claim_and_go_on() -> None:
        stop_at_call(1, "open and then", ".commit")
        publish(store, [JFK], [2], replace=True)
        gate.wait()
        publish(store, [JFK], [3], replace=True)

    with child(claim_and_go_on) as writer:
        writer.wait_until_stopped()

        def slow(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
            descriptor = own_open(path, flags, *arguments, **named)
            if str(path).endswith("JFK.2.commit") and not reads:
                reads.append(os.read(descriptor, 100))
                os.close(descriptor)
                writer.go_on()
                gate.open()
                writer.answer()  # by now the marker below is gone
                return own_open(os.devnull, os.O_RDONLY)
            return descriptor

        monkeypatch.setattr(os, "open", slow)
        if verb == "scan":
            assert list(store.scan(FLIGHTS).committed) == [JFK]
        elif verb == "read":
            assert store.read(JFK).column("value").to_pylist() == [3]
        else:
            assert list(store.records([JFK])) == [JFK]
    assert reads == [b""]


# A scan of any tree, and the same asked for literally, partition by partition.

UNITS = {"JFK": "JFK", "jfk": "%6A%66%6B", "dot.": "dot%2E"}
CATALOGUE = a_catalogue(
    units=[Unit(name) for name in UNITS],
    categories=[Category("carrier")],
    value_types=[ValueType("delay")],
)
DAYS = [date(2013, 8, 1) + timedelta(days=n) for n in range(2)]
BYTES = [b"", b"some rows", b"other rows"]
SEGMENTS = [*UNITS.values(), "LGA", "jfk"]
NUMBERS = ["1", "2", "3", "10"]
TEXTS = ["whole", "whole", "whole", "cut", "garbage", "other number", "other unit", "empty"]
LITTER = [
    "JFK.parquet", "JFK.commit", "JFK.01.commit", "JFK.0.commit", "JFK.1.COMMIT", "JFK.1.commit~",
    "JFK.x.commit", "JFK.1.1.commit", "JFK.1.abc.parquet", ".commit", "JFK.\u0661.commit",
    "JFK.1." + "A" * 32 + ".parquet", "JFK.1." + "a" * 32 + ".json", "JFK.1234567890.commit",
]  # fmt: skip
KINDS = ["file"] * 6 + ["folder", "dangling"]

days = strategies.sampled_from(DAYS)
kinds = strategies.sampled_from(KINDS)
segments = strategies.sampled_from(SEGMENTS)
numbers = strategies.sampled_from(NUMBERS)
contents = strategies.sampled_from(BYTES)
trees = strategies.lists(
    strategies.one_of(
        strategies.tuples(
            strategies.just("marker"), days, segments, numbers, contents,
            strategies.sampled_from(TEXTS), kinds,
        ),
        strategies.tuples(strategies.just("data"), days, segments, numbers, contents, kinds),
        strategies.tuples(
            strategies.just("other"), days,
            strategies.sampled_from([*LITTER, *(f"{s}.hold" for s in SEGMENTS)]), kinds,
        ),
    ),
    max_size=30,
)  # fmt: skip


@STORES
@given(trees)
def test_a_scan_of_any_tree_finds_what_asking_for_each_partition_finds(
    tree: list[tuple[Any, ...]],
) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory) as folder, no_links_and_no_renames():
        root = Path(folder)
        store = LocalPartitionStore(root, [CATALOGUE], commit_protocol="marker")
        store.prepare()
        for what, day, *thing in tree:
            day_folder = root / "flights/carrier/delay/v1" / str(day)
            day_folder.mkdir(parents=True, exist_ok=True)
            MAKERS[what](day_folder, *thing)

        inventory = store.scan(CATALOGUE)

        asked = {
            CATALOGUE.partition("carrier/delay", day, unit): asked_for(root, day, segment)
            for day in DAYS
            for unit, segment in UNITS.items()
        }
        assert set(inventory.committed) == {p for p, found in asked.items() if found}
        assert {p: store.location(p) for p in inventory.committed} == {
            p: found for p, found in asked.items() if found
        }
        assert set(inventory.held) == {
            CATALOGUE.partition("carrier/delay", day, unit)
            for day in DAYS
            for unit, segment in UNITS.items()
            if is_file(root / f"flights/carrier/delay/v1/{day}/{segment}.hold")
        }
        assert set(inventory.strangers) == {str(path) for path in strangers_below(root)}
        assert inventory.strangers_count == len(inventory.strangers)
        within = store.scan(
            CATALOGUE, within=PartitionSet.rectangle(CATALOGUE, CATALOGUE.queries, DAYS[:1], 1)
        )
        assert set(within.committed) == {p for p in inventory.committed if p.day == DAYS[0]}
        assert within.strangers == ()


def a_text(segment: str, number: str, content: bytes) -> bytes:
    """Return the marker of some content, as the documentation has it."""
    digest = hashlib.sha256(content).hexdigest()
    body = (
        f'{{"marker":1,"number":{number},"data":"{segment}.{number}.{digest[:32]}.parquet",'
        f'"size":{len(content)},"sha256":"{digest}"'
    )
    return f'{body},"checksum":"{hashlib.sha256(body.encode()).hexdigest()}"}}\n'.encode()


def put_marker(
    folder: Path, segment: str, number: str, content: bytes, text: str, kind: str
) -> None:
    whole = a_text(segment, number, content)
    texts = {
        "whole": whole,
        "cut": whole[: len(whole) // 2],
        "garbage": b"garbage",
        "other number": a_text(segment, "7", content),
        "other unit": a_text("EWR", number, content),
        "empty": b"",
    }
    put(folder / f"{segment}.{number}.commit", texts[text], kind)


def put_data(folder: Path, segment: str, number: str, content: bytes, kind: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    put(folder / f"{segment}.{number}.{digest[:32]}.parquet", content, kind)


def put_other(folder: Path, name: str, kind: str) -> None:
    put(folder / name, b"", kind)


def put(path: Path, content: bytes, kind: str) -> None:
    if path.is_symlink() or path.exists():
        return
    if kind == "file":
        path.write_bytes(content)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")


MAKERS: dict[str, Any] = {
    "marker": put_marker,
    "data": put_data,
    "other": put_other,
}


def is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def asked_for(root: Path, day: date, segment: str) -> str | None:
    """Return the data file that counts, by asking for each literal name of one partition."""
    folder = root / f"flights/carrier/delay/v1/{day}"
    highest = _highest(folder, segment)
    if highest is None:
        return None
    _, content = highest
    data = folder / f"{segment}.{highest[0]}.{hashlib.sha256(content).hexdigest()[:32]}.parquet"
    return str(data) if is_file(data) else None


def _highest(folder: Path, segment: str) -> tuple[int, bytes] | None:
    """Return the number of the highest whole marker, and the content that it commits."""
    for number in sorted(map(int, NUMBERS), reverse=True):
        path = folder / f"{segment}.{number}.commit"
        text = path.read_bytes() if is_file(path) else b""
        for content in BYTES:
            if text == a_text(segment, str(number), content):
                return number, content
    return None


def strangers_below(root: Path) -> list[Path]:
    """Return what has no business in the days of the tree."""
    return [
        path
        for day in DAYS
        for path in sorted((root / f"flights/carrier/delay/v1/{day}").glob("*"))
        + sorted((root / f"flights/carrier/delay/v1/{day}").glob(".*"))
        if is_strange(path)
    ]


def is_strange(path: Path) -> bool:
    segment, *rest = path.name.split(".")
    if not is_file(path) or segment not in UNITS.values() or path.name in LITTER:
        return True
    if rest == ["hold"]:
        return False
    number = rest[0]
    if rest[-1] == "commit":
        wholes = [a_text(segment, number, content) for content in BYTES]
        text = path.read_bytes()
        return not any(whole.startswith(text) for whole in wholes)
    highest = _highest(path.parent, segment)
    if highest is None or int(number) > highest[0]:
        return False
    return str(path) != asked_for(path.parents[5], date.fromisoformat(path.parent.name), segment)
