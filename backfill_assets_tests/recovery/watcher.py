"""Somebody who looks at the store all the time, and never sees anything that is not whole.

Each look notes the files that are new. A file that was seen once never changes again: neither its
inode nor its time nor its size, which means that nothing wrote it a second time or in place.

Where partitions are linked into place, every file that stands is looked at; where markers commit
them, the data of those that are committed.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from backfill_assets.core.errors import BackfillAssetsError
from backfill_assets.core.partitions import parse_day
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.models.catalogue import FLIGHT_MODELS
from backfill_assets.stores.files import attempts, documents
from backfill_assets.stores.files.identity import NAME

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from backfill_assets.core.partitions import Partition
    from backfill_assets.stores.files.local import LocalPartitionStore

BETWEEN_LOOKS_SECONDS = 0.3  # a look at the whole year takes as long
SAMPLE = 20  # new files that are read and checked at each look

Stamp = tuple[int, int, int]  # inode, time of the last change in ns, size


@dataclass(slots=True)
class Watcher:
    """Looks at a store from the side, in a thread of its own.

    Attributes:
        sizes: What size the file of each path must have, by path below the root.
        stamps: Lists what there is to be seen.
        seen: The stamp with which each file was first seen.
        wrong: What should not have been seen.
        verified: How many files were read right when they were first seen.
    """

    store: LocalPartitionStore
    sizes: Mapping[str, int]
    choice: random.Random
    stamps: Callable[[LocalPartitionStore], Iterator[tuple[str, Stamp]]]
    seen: dict[str, Stamp] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    verified: int = 0
    looks: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, name="watcher")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def check(self) -> None:
        """Fail where something was wrong so far, or where the watcher itself has ended."""
        assert self.wrong == []
        assert self._thread is not None
        assert self._thread.is_alive()

    def look(self) -> None:
        """Look at every file once."""
        new = []
        for path, stamp in self.stamps(self.store):
            first = self.seen.get(path)
            if first is None:
                self.seen[path] = stamp
                new.append(path)
            elif first != stamp:
                self.wrong.append(f"{path} changed from {first} to {stamp}")
        for path in new:
            if path not in self.sizes:
                self.wrong.append(f"{path} is no partition")
            elif self.seen[path][2] != self.sizes[path]:
                self.wrong.append(f"{path} has {self.seen[path][2]} of {self.sizes[path]} bytes")
        for path in self.choice.sample(new, min(SAMPLE, len(new))):
            self._verify(path)
        self.looks += 1

    def _watch(self) -> None:
        while not self._over.wait(BETWEEN_LOOKS_SECONDS):
            self.look()

    def _verify(self, path: str) -> None:
        if path in self.sizes:
            try:
                self.store.verify(partition_at(path))
                self.verified += 1
            except BackfillAssetsError as error:
                self.wrong.append(str(error))


# What stands below a store's root besides the flights.
ELSEWHERE = {attempts.FOLDER, documents.FOLDER, FLIGHT_MODELS.name}


def stamps(root: Path) -> Iterator[tuple[str, Stamp]]:
    """Yield each file of the flights, and what would change if it were written again."""
    for folder, names, files in os.walk(root):
        if folder == str(root):
            names[:] = [name for name in names if name not in ELSEWHERE]
        for name in files:
            if folder == str(root) and name == NAME:
                continue
            path = os.path.join(folder, name)  # noqa: PTH118 - text, for speed
            yield os.path.relpath(path, root), _stamp(path)


def stamps_of_files(store: LocalPartitionStore) -> Iterator[tuple[str, Stamp]]:
    """Yield each file that stands, whatever it is."""
    yield from stamps(store.root)


def stamps_of_committed(store: LocalPartitionStore) -> Iterator[tuple[str, Stamp]]:
    """Yield the data of each committed partition."""
    for path, file in committed_files(store):
        yield path, _stamp(file)


def committed_files(store: LocalPartitionStore) -> Iterator[tuple[str, str]]:
    """Yield the data file of each committed partition, after the path that a link would have."""
    if store.exists():
        for partition in store.scan(FLIGHTS).committed:
            folder = f"{'/'.join(partition.query.asset_path)}/v1/{partition.day}"
            yield f"{folder}/{partition.unit}.parquet", store.location(partition)


def _stamp(path: str) -> Stamp:
    found = os.lstat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size


def partition_at(path: str) -> Partition:
    """Return the partition whose file stands at a path below the root."""
    _, category, value_type, _, day_text, name = path.split("/")
    day = parse_day(day_text)
    assert day is not None
    return FLIGHTS.partition_of(
        FLIGHTS.query(f"{category}/{value_type}"), f"{day}|{name.partition('.')[0]}"
    )
