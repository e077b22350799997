"""The store on a local directory; see ``core.store`` for what each verb promises."""

from __future__ import annotations

import contextlib
import json
import os
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from backfill_assets.core.errors import (
    CorruptPartitionError,
    MissingPartitionError,
    SourceError,
    StoreUnreadableError,
)
from backfill_assets.stores.files import identity, pruning, scanning
from backfill_assets.stores.files.attempts import AttemptFolder
from backfill_assets.stores.files.documents import LocalDocuments
from backfill_assets.stores.files.durability import Flusher, all_translated, translated
from backfill_assets.stores.files.layout import Layout, is_regular_file
from backfill_assets.stores.files.looks import Looks
from backfill_assets.stores.files.protocols import commit_protocol as protocol_called
from backfill_assets.stores.files.publishing import LocalAttempt
from backfill_assets.stores.formats import file_format as format_called
from backfill_assets.stores.tables import record_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date, datetime

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.leftovers import Leftover, Leftovers
    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import CommitRecord, Inventory

LONGEST_RUN = timedelta(hours=24)  # only where file locks do not work; see dagster.yaml
LATELY = timedelta(minutes=10)  # a run commits in bursts; a few runs make an average


class LocalPartitionStore:
    """Committed files below one directory of one file system.

    Args:
        root: The store's folder; `prepare` begins a store there.
        catalogues: All that the store may hold.
        file_format: ``parquet`` or ``json``; for all files of the store.
        commit_protocol: ``link``, or ``marker`` where nothing can be linked or renamed.
    """

    def __init__(
        self,
        root: Path,
        catalogues: Sequence[Catalogue],
        *,
        file_format: str = "parquet",
        commit_protocol: str = "link",
    ) -> None:
        self.root = root.absolute()
        self.file_format = file_format
        self._format = format_called(file_format)
        self._catalogues = {catalogue.name: catalogue for catalogue in catalogues}
        self._protocol = protocol_called(commit_protocol, self._format)
        self._identity = identity.Identity.of(catalogues, file_format, commit_protocol)
        self._layout = Layout(self.root, self._format.suffix)
        self._attempts = AttemptFolder(
            self.root, longest_run=LONGEST_RUN, end=self._protocol.end_attempt
        )
        self.documents = LocalDocuments(
            self.root, self._attempts, self._protocol, self._check_writable
        )
        self._looks = Looks()
        self._is_proved = False
        self._fingerprints: dict[Partition, tuple[tuple[int, int], str | None]] = {}

    def exists(self) -> bool:
        """Return whether the root is a store already."""
        return identity.read(self.root) is not None

    def prepare(self) -> None:
        """Begin the store, or check its identity, and prove that publishing is atomic there.

        Only whoever starts the project calls this: nothing else begins a store where one was lost.

        Raises:
            StoreUnreadableError: the root cannot be written, or holds other things.
            StoreUnsupportedError: other settings made it, or its file system lacks what is needed.
        """
        if self._is_proved:
            self._check_identity()  # a root that was unmounted since is no new store
            return
        identity.refuse_foreign(self.root)  # before anything is written there
        self._protocol.prove(self.root, self._attempts)
        self._is_proved = True
        identity.establish(self.root, self._attempts, self._identity, self._protocol.place_identity)

    def scan(self, catalogue: Catalogue, *, within: PartitionSet | None = None) -> Inventory:
        """Return what stands in the store for one catalogue."""
        self._check_identity()
        scan_day = self._protocol.day_scan(catalogue)
        with translated("reading"):
            if within is not None:
                return scanning.scan_within(self._layout, scan_day, within)
            looks = self._looks if self._protocol.names_say_all else None
            return scanning.scan(self._layout, scan_day, catalogue, looks)

    @contextmanager
    def attempt(self, name: str) -> Iterator[LocalAttempt]:
        """Open an attempt; it is alive until the context or the process ends."""
        self._check_writable()
        with self._attempts.open(name) as directory, self._flusher() as flusher:
            publisher = self._protocol.publisher(directory, flusher)
            yield LocalAttempt(directory, self._format, flusher, publisher, self._stem)

    def is_alive(self, name: str) -> bool:
        """Return whether a process holds an attempt whose name begins with ``name``."""
        self._check_identity()  # of a root that is not there nobody can tell
        return self._attempts.is_alive(name)

    def revoke(self, name: str) -> int:
        """End every attempt whose name begins with ``name``."""
        self._check_identity()
        return self._attempts.revoke(name)

    def sweep(self) -> int:
        """Remove what dead attempts left behind."""
        self._check_identity()
        return self._attempts.sweep()

    def read(self, partition: Partition) -> pa.Table:
        """Return a partition's rows."""
        path, content = self._committed(partition)
        return self._format.decode(content, path, partition)

    def records(self, partitions: Iterable[Partition]) -> Mapping[Partition, CommitRecord]:
        """Return the commit records of committed partitions; those that are gone are left out."""
        found = {}
        for partition in partitions:
            if committed := self._content(partition):
                path, content = committed
                found[partition] = self._format.record(content, path)
        return found

    def source_fingerprints(
        self, partitions: Iterable[Partition]
    ) -> Mapping[Partition, str | None]:
        """Return the source's fingerprints in the commit records; unchanged files are not read."""
        found: dict[Partition, str | None] = {}
        for partition in partitions:
            with translated("reading"):
                try:
                    state = Path(self.location(partition)).stat()
                except (FileNotFoundError, NotADirectoryError):
                    continue
            mark = (state.st_ino, state.st_mtime_ns)
            known = self._fingerprints.get(partition)
            if known is None or known[0] != mark:
                known = (mark, self._fingerprint(partition))
                self._fingerprints[partition] = known
            found[partition] = known[1]
        return found

    def commit_rate(self, partitions: Iterable[Partition], now: datetime) -> float:
        """Return how many of these were committed a second over the last minutes."""
        since = (now - LATELY).timestamp()
        times = []
        for partition in partitions:
            gone = contextlib.suppress(FileNotFoundError, NotADirectoryError)
            with gone, translated("reading"):
                times.append(Path(self.location(partition)).stat().st_mtime)
        lately = [moment for moment in times if moment >= since]
        if not lately:
            return 0.0
        return len(lately) / max(now.timestamp() - min(lately), 1.0)

    def verify(self, partition: Partition) -> CommitRecord:
        """Read a partition and check its schema, key, rows and digest."""
        return self.read_checked(partition)[0]

    def read_checked(self, partition: Partition) -> tuple[CommitRecord, pa.Table]:
        """Return a partition's commit record and its rows, which were found to agree."""
        path, content = self._committed(partition)
        record = self._format.record(content, path)
        table = self._format.decode(content, path, partition)
        wrong = _wrong(record, table, partition)
        if wrong:
            message = f"{path}: {wrong}; delete it and the next tick makes it again"
            raise CorruptPartitionError(message)
        return record, table

    def hold(self, partitions: Sequence[Partition], reason: str) -> None:
        """Withdraw partitions: the holds stand first, then the files go.

        A crash leaves each partition held or as it was; the hold wins over a file that is left.
        """
        holds = {Path(self._hold_file(p)): _hold_text(p, reason) for p in partitions}
        self._check_writable()
        with self._attempts.open("hold") as folder, self._flusher() as flusher:
            with all_translated("holding"):
                self._protocol.write_holds(folder, holds, flusher)
            flusher.flush(self._folders_of(holds))
            self._remove_data(partitions, flusher)

    def hold_reason(self, partition: Partition) -> str | None:
        """Return why a partition is held, or None where it is not."""
        hold = Path(self._hold_file(partition))
        try:
            with translated("reading"):
                if not is_regular_file(str(hold)):
                    return None
                return str(json.loads(hold.read_text(encoding="utf-8"))["reason"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return f"{hold} gives no reason: it was not made by this project"

    def release(self, partitions: Sequence[Partition]) -> None:
        """Make held partitions missing again: what a crash left of the file goes first."""
        self._check_identity()
        with translated("reading"):
            held = [partition for partition in partitions if self._is_held(partition)]
        holds = [Path(self._hold_file(partition)) for partition in held]
        with self._flusher() as flusher:
            self._remove_data(held, flusher)
            with translated("releasing"):
                for hold in holds:
                    hold.unlink(missing_ok=True)
            flusher.flush(self._folders_of(holds))

    def ask_to_restate(self, partitions: Sequence[Partition]) -> None:
        """Have committed partitions made again; a crash leaves each wish whole or absent."""
        self._check_writable()
        wishes = [Path(self._restate_file(partition)) for partition in partitions]
        with all_translated("asking to restate"), self._flusher() as flusher:
            for wish in wishes:
                _touch(wish)
            flusher.flush(self._folders_of(wishes))

    def leftovers(self, catalogue: Catalogue, latest_closed_day: date) -> Leftovers:
        """Return what stands in a catalogue's folder and is not asked for any more."""
        self._check_identity()
        return pruning.leftovers(
            self._layout, self._protocol.segment_of, catalogue, latest_closed_day
        )

    def remove(self, leftovers: Sequence[Leftover]) -> int:
        """Remove leftovers, durably; return how many went. A crash leaves each there or gone."""
        self._check_identity()
        with self._flusher() as flusher:
            return pruning.remove(self.root, leftovers, flusher)

    def location(self, partition: Partition) -> str:
        """Return the path of a partition's file."""
        return self._protocol.location(self._stem(partition))

    def _check_writable(self) -> None:
        """Check the identity, and once in a process that publishing is atomic here."""
        self._check_identity()
        if not self._is_proved:
            self._protocol.prove(self.root, self._attempts)
            self._is_proved = True

    def _check_identity(self) -> None:
        found = identity.read(self.root)
        if found is None:
            message = (
                f"{self.root} is not a store, or is not mounted: it has no {identity.NAME}. "
                "Nothing was counted as missing; mount it, or run `backfill-assets up` to begin one"
            )
            raise StoreUnreadableError(message)
        identity.check(self.root, found, self._identity)

    def _committed(self, partition: Partition) -> tuple[Path, bytes]:
        """Return a committed file's path and content, read at one moment."""
        if committed := self._content(partition):
            return committed
        self._check_identity()
        found = "is held" if self._is_held(partition) else "is not committed"
        message = (
            f"partition {partition.key} of {'/'.join(partition.query.asset_path)} {found}: no file "
            f"at {self.location(partition)}. "
            f"`backfill-assets plan --explain '{partition}'` says why"
        )
        raise MissingPartitionError(message)

    def _content(self, partition: Partition) -> tuple[Path, bytes] | None:
        with translated("reading"):
            if self._is_held(partition):
                return None
            return self._protocol.content(self._stem(partition))

    def _fingerprint(self, partition: Partition) -> str | None:
        try:
            record = self.records([partition]).get(partition)
        except CorruptPartitionError:
            return None  # what verifies names it; a look for changes is not stopped by one file
        return None if record is None else record.source

    def _is_held(self, partition: Partition) -> bool:
        return is_regular_file(self._hold_file(partition))

    def _remove_data(self, partitions: Sequence[Partition], flusher: Flusher) -> None:
        """Remove the files of partitions, durably; what is no file of ours is left alone."""
        stems = [self._stem(partition) for partition in partitions]
        with translated("removing"):
            self._protocol.remove(stems)
        flusher.flush(self._folders_of(map(Path, stems)))

    def _folders_of(self, files: Iterable[Path]) -> set[str]:
        """Return the folders of files up to the root: those whose names may be new."""
        folders = {folder for file in files for folder in file.parents}
        return {str(f) for f in folders if f.is_relative_to(self.root) and f.is_dir()}

    def _flusher(self) -> closing[Flusher]:
        return closing(Flusher(str(self.root)))

    def _stem(self, partition: Partition) -> str:
        return self._layout.stem(self._catalogues[partition.query.catalogue], partition)

    def _restate_file(self, partition: Partition) -> str:
        catalogue = self._catalogues[partition.query.catalogue]
        return self._layout.restate_file(catalogue, partition)

    def _hold_file(self, partition: Partition) -> str:
        return self._layout.hold_file(self._catalogues[partition.query.catalogue], partition)


def _touch(path: Path) -> None:
    """Make an empty file, or let one that stands there be new; no link is followed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def _hold_text(partition: Partition, reason: str) -> str:
    return json.dumps({"partition": str(partition), "reason": reason})


def _wrong(record: CommitRecord, table: pa.Table, partition: Partition) -> str | None:
    """Return what is wrong with a file whose record and rows could be decoded."""
    try:
        rows_wrong = _wrong_rows(table, partition)
        return rows_wrong or _difference(record, record_of(partition, table))
    except (SourceError, ValueError, OverflowError, pa.ArrowException) as error:
        return f"a value is damaged ({error})"  # infinite, no text, or of no calendar


def _wrong_rows(table: pa.Table, partition: Partition) -> str | None:
    for name, own in (("date", partition.day), ("unit", partition.unit)):
        strange = set(table.column(name).unique().to_pylist()) - {own}
        if strange:
            return f"a row has {name} {strange.pop()!r}, not {own!r}"
    return None


def _difference(says: CommitRecord, holds: CommitRecord) -> str | None:
    for name in ("partition", "version", "rows", "digest"):
        if getattr(says, name) != getattr(holds, name):
            return (
                f"its commit record says {name} {getattr(says, name)!r}, "
                f"and it holds {getattr(holds, name)!r}"
            )
    return None
