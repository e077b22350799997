"""One small catalogue, rows for its partitions, and stores of it on real folders."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.partitions import ColumnType
from backfill_assets.stores.files.attempts import AttemptFolder
from backfill_assets.stores.files.layout import Layout
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.files.protocols import commit_protocol
from backfill_assets.stores.files.publishing import LocalAttempt
from backfill_assets.stores.formats import ParquetFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from backfill_assets.core.partitions import Partition
    from backfill_assets.stores.files.durability import Flusher

# The same commit always gets the same verdict; trees and tables are slow to draw on a busy machine.
STORES = settings(
    derandomize=True,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow],
)

TICK_SECONDS = 0.02  # more than a tick of the clock of the file systems that tests run on

DAY = date(2013, 8, 3)
NEXT_DAY = date(2013, 8, 4)

# Units whose names a careless store would lose, merge, or write outside its root.
STRANGE_UNITS = {
    "JFK": "JFK",
    "jfk": "%6A%66%6B",
    "..": "%2E%2E",
    "/etc/x": "%2Fetc%2Fx",
    "../../x": "%2E%2E%2F%2E%2E%2Fx",
    "C:\\x": "C%3A%5Cx",
    "~": "%7E",
    "$HOME": "%24HOME",
    "CON": "%43%4F%4E",
    "a*": "a%2A",
    "a%2A": "a%252A",
    "dot.": "dot%2E",
    "JFK.parquet": "JFK%2Eparquet",
    "Zürich": "Z%C3%BCrich",
}


def a_catalogue(**changes: Any) -> Catalogue:
    """Return a catalogue of three airports, two categories and two value types."""
    parts: dict[str, Any] = {
        "name": "flights",
        "closing": ClosingPolicy(zone=ZoneInfo("America/New_York")),
        "first_day": date(2013, 8, 1),
        "units": [Unit("EWR"), Unit("JFK"), Unit("LGA")],
        "categories": [Category("carrier"), Category("hour", ColumnType.INT64)],
        "value_types": [ValueType("departures", ColumnType.INT64), ValueType("delay")],
    }
    return Catalogue(**(parts | changes))


FLIGHTS = a_catalogue()
DEPARTURES = FLIGHTS.query("carrier/departures")
DELAY = FLIGHTS.query("carrier/delay")
JFK = FLIGHTS.partition("carrier/departures", DAY, "JFK")
EWR = FLIGHTS.partition("carrier/departures", DAY, "EWR")
LGA_NEXT_DAY = FLIGHTS.partition("carrier/departures", NEXT_DAY, "LGA")
JFK_DELAY = FLIGHTS.partition("carrier/delay", DAY, "JFK")
GROUP = (LGA_NEXT_DAY, EWR, JFK)  # two days of one query


def rows_of(partition: Partition, values: Iterable[int | float | None] = (1, 2)) -> pa.Table:
    """Return a row per value, for carriers, or hours, that are numbered on."""
    numbers = list(values)
    is_text = partition.query.category_type is ColumnType.STRING
    groups = [f"C{n}" if is_text else n for n in range(len(numbers))]
    category_type = pa.string() if is_text else pa.int64()
    value_type = pa.int64() if partition.query.column_type is ColumnType.INT64 else pa.float64()
    columns = [pa.array(groups, category_type), pa.array(numbers, value_type)]
    return pa.table(columns, names=[partition.query.category, "value"])


def a_store(
    root: Path, file_format: str = "parquet", protocol: str = "link"
) -> LocalPartitionStore:
    """Return the store of the catalogue at a folder."""
    return LocalPartitionStore(root, [FLIGHTS], file_format=file_format, commit_protocol=protocol)


@contextmanager
def an_attempt(
    store: LocalPartitionStore, protocol: str, flusher: Flusher
) -> Iterator[LocalAttempt]:
    """Open the attempt ``run-1`` of a store with a flusher of the test's own."""
    file_format = ParquetFormat()
    chosen = commit_protocol(protocol, file_format)
    layout = Layout(store.root, file_format.suffix)
    folder = AttemptFolder(store.root, longest_run=timedelta(hours=1), end=chosen.end_attempt)
    with folder.open("run-1") as directory:
        publisher = chosen.publisher(directory, flusher)
        stem_of = partial(layout.stem, FLIGHTS)
        yield LocalAttempt(directory, file_format, flusher, publisher, stem_of)


@contextmanager
def no_links_and_no_renames() -> Iterator[None]:
    """Have the operating system refuse every link and rename, in children of this process too."""

    def refused(*paths: Any, **_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(paths[-1]))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("link", "rename", "replace", "renames"):
            patch.setattr(os, name, refused)
        for name in ("rename", "replace", "hardlink_to"):
            patch.setattr(Path, name, refused)
        patch.setattr(shutil, "move", refused)
        yield


def publish(
    store: Any,
    partitions: Iterable[Partition],
    values: Iterable[int | float | None] = (1, 2),
    *,
    replace: bool = False,
    name: str = "run",
    source: str | None = None,
) -> list[Any]:
    """Publish the same values for each partition, as one group."""
    store.prepare()
    with store.attempt(name) as attempt:
        for partition in partitions:
            attempt.stage(partition, rows_of(partition, values), source=source)
        published: list[Any] = attempt.publish(replace=replace)
    return published


def files_below(root: Path) -> dict[str, bytes]:
    """Return what stands below a root outside its attempts: path to content, of files only."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".attempts" not in path.relative_to(root).parts
    }


def contents_of(store: LocalPartitionStore) -> dict[str, list[Any]]:
    """Return the values of all that is committed, each checked: partition to values."""
    inventory = store.scan(FLIGHTS)
    found = list(inventory.committed - inventory.held)
    assert all(store.verify(partition) for partition in found)
    return {str(p): store.read(p).column("value").to_pylist() for p in found}


def attempts_left(root: Path) -> list[str]:
    """Return the names of the attempt directories that are left."""
    return sorted(path.name for path in (root / ".attempts").iterdir() if path.is_dir())
