"""The store on a local directory; see ``core.store`` for what each verb promises."""

from __future__ import annotations

import contextlib
import json
import os
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.core.errors import (
    CorruptPartitionError,
    MissingPartitionError,
    StoreUnreadableError,
)
from backfill_assets.stores.files import identity, scanning
from backfill_assets.stores.files.attempts import AttemptFolder
from backfill_assets.stores.files.durability import Flusher, translated
from backfill_assets.stores.files.layout import Layout
from backfill_assets.stores.files.probe import prove_links_and_renames
from backfill_assets.stores.files.publishing import LocalAttempt
from backfill_assets.stores.formats import file_format as format_called
from backfill_assets.stores.tables import record_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import CommitRecord, Inventory

COMMIT_PROTOCOL = "link"
LONGEST_RUN = timedelta(hours=24)  # only where file locks do not work; see dagster.yaml


class LocalPartitionStore:
    """Committed files below one directory of one file system.

    Args:
        root: The store's folder. Made when the first attempt is opened.
        catalogues: All that the store may hold.
        file_format: ``parquet`` or ``json``; for all files of the store.
    """

    def __init__(
        self, root: Path, catalogues: Sequence[Catalogue], *, file_format: str = "parquet"
    ) -> None:
        self.root = root.absolute()
        self._format = format_called(file_format)
        self._catalogues = {catalogue.name: catalogue for catalogue in catalogues}
        self._identity = identity.Identity.of(catalogues, file_format, COMMIT_PROTOCOL)
        self._layout = Layout(self.root, self._format.suffix)
        self._attempts = AttemptFolder(self.root, longest_run=LONGEST_RUN)
        self._is_prepared = False

    def exists(self) -> bool:
        """Return whether the root is a store already."""
        return identity.read(self.root) is not None

    def prepare(self) -> None:
        """Make or check the root's identity, and prove that publishing is atomic there.

        Raises:
            StoreUnreadableError: the root cannot be written, or holds other things.
            StoreUnsupportedError: other settings made it, or its file system lacks what is needed.
        """
        if not self._is_prepared:
            identity.establish(self.root, self._attempts, self._identity)
            prove_links_and_renames(self.root, self._attempts)
            self._is_prepared = True

    def scan(self, catalogue: Catalogue) -> Inventory:
        """Return what stands in the store for one catalogue."""
        found = identity.read(self.root)
        if found is None:
            message = (
                f"{self.root} is not a store, or is not mounted: it has no {identity.NAME}. "
                "Nothing was counted as missing; mount it, or run `backfill-assets up` to begin one"
            )
            raise StoreUnreadableError(message)
        identity.check(self.root, found, self._identity)
        return scanning.scan(self._layout, catalogue)

    @contextmanager
    def attempt(self, name: str) -> Iterator[LocalAttempt]:
        """Open an attempt; it is alive until the context or the process ends."""
        self.prepare()
        with self._attempts.open(name) as directory:
            flusher = Flusher(str(self.root))
            try:
                yield LocalAttempt(directory, self._format, flusher, self._data_file)
            finally:
                flusher.close()

    def is_alive(self, name: str) -> bool:
        """Return whether a process holds an attempt whose name begins with ``name``."""
        return self._attempts.is_alive(name)

    def revoke(self, name: str) -> int:
        """End every attempt whose name begins with ``name``."""
        return self._attempts.revoke(name)

    def sweep(self) -> int:
        """Remove what dead attempts left behind."""
        return self._attempts.sweep()

    def read(self, partition: Partition) -> pa.Table:
        """Return a partition's rows."""
        return self._format.decode(self._committed(partition), partition)

    def records(self, partitions: Iterable[Partition]) -> Mapping[Partition, CommitRecord]:
        """Return the commit records of committed partitions; those that are gone are left out."""
        found = {}
        for partition in partitions:
            with contextlib.suppress(FileNotFoundError):
                found[partition] = self._format.record(Path(self._data_file(partition)))
        return found

    def verify(self, partition: Partition) -> CommitRecord:
        """Read a partition and check its schema, key, rows and digest."""
        path = self._committed(partition)
        record = self._format.record(path)
        table = self._format.decode(path, partition)
        wrong = _wrong_rows(table, partition) or _difference(record, record_of(partition, table))
        if wrong:
            message = f"{path}: {wrong}; delete it and the next tick makes it again"
            raise CorruptPartitionError(message)
        return record

    def hold(self, partitions: Sequence[Partition], reason: str) -> None:
        """Withdraw partitions: the hold stands first, then the file goes.

        A crash leaves each partition held or as it was; the hold wins over a file that is left.
        """
        with self.attempt("hold") as attempt, translated("holding"):
            for place, partition in enumerate(partitions):
                draft = self._attempts.path / attempt.name / str(place)
                draft.write_text(json.dumps({"partition": str(partition), "reason": reason}))
                hold = Path(self._hold_file(partition))
                hold.parent.mkdir(parents=True, exist_ok=True)
                draft.replace(hold)
                Path(self._data_file(partition)).unlink(missing_ok=True)
                _flush_folder(hold.parent)

    def release(self, partitions: Sequence[Partition]) -> None:
        """Make held partitions missing again: what a crash left of the file goes first."""
        with translated("releasing"):
            for partition in partitions:
                hold = Path(self._hold_file(partition))
                if hold.exists():
                    Path(self._data_file(partition)).unlink(missing_ok=True)
                    hold.unlink(missing_ok=True)
                    _flush_folder(hold.parent)

    def location(self, partition: Partition) -> str:
        """Return the path of a partition's file."""
        return self._data_file(partition)

    def _committed(self, partition: Partition) -> Path:
        path = Path(self._data_file(partition))
        with translated("reading"):
            is_held = Path(self._hold_file(partition)).exists()
        if is_held or path.is_symlink() or not path.is_file():
            found = "is held" if is_held else "is not committed"
            message = (
                f"partition {partition.key} of {'/'.join(partition.query.asset_path)} {found}: "
                f"no file at {path}. `backfill-assets plan --explain '{partition}'` says why"
            )
            raise MissingPartitionError(message)
        return path

    def _data_file(self, partition: Partition) -> str:
        return self._layout.data_file(self._catalogues[partition.query.catalogue], partition)

    def _hold_file(self, partition: Partition) -> str:
        return self._layout.hold_file(self._catalogues[partition.query.catalogue], partition)


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


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
