"""What a store of partitions can do; the implementations live in ``stores``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import date, datetime

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.leftovers import Leftover, Leftovers
    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.core.partitions import Partition

TableT = TypeVar("TableT")
TableT_contra = TypeVar("TableT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What a committed file says about itself; nothing of who wrote it or when.

    Attributes:
        partition: ``catalogue/category/value_type/day/unit``.
        version: The query's version.
        rows: The number of rows.
        digest: The digest of the rows, the same in every file format.
        source: The source's fingerprint of the day when the rows were read, or None where it has
            none.
    """

    partition: str
    version: int
    rows: int
    digest: str
    source: str | None = None

    def is_same_content(self, other: CommitRecord) -> bool:
        """Return whether both speak of the same rows, whatever the source's fingerprint was."""
        return (self.rows, self.digest) == (other.rows, other.digest)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What stands in the store for one catalogue, as one scan found it.

    Attributes:
        committed: Partitions with a committed file, expected or not.
        held: Partitions with a hold; a hold wins over a file.
        restating: Partitions that somebody wishes to be made again.
        strangers: Paths below the catalogue that are no partition of it, sorted, the first few.
        strangers_count: How many such paths there are.
    """

    committed: PartitionSet
    held: PartitionSet
    restating: PartitionSet
    strangers: tuple[str, ...]
    strangers_count: int


@dataclass(frozen=True, slots=True)
class Published:
    """One partition made visible.

    Attributes:
        size: The size of the file in bytes.
        adopted: Whether the same content stood there already.
    """

    partition: Partition
    record: CommitRecord
    size: int
    adopted: bool


class Attempt(Protocol[TableT_contra]):
    """One try at making partitions: where its files are before anybody sees them."""

    @property
    def name(self) -> str:
        """The attempt's name; its run id first."""

    def stage(
        self, partition: Partition, table: TableT_contra, *, source: str | None = None
    ) -> None:
        """Write a partition's file where no reader looks.

        Args:
            source: The source's fingerprint of the day; part of the commit record.

        Raises:
            StaleAttemptError: the attempt was revoked.
            StoreFullError: there is no room.
        """

    def stage_file(
        self, partition: Partition, record: CommitRecord, content: bytes | memoryview
    ) -> None:
        """Stage a whole file as it is.

        Args:
            record: What the file says about itself; the caller has checked that it is true.
            content: Of the store's own format.

        Raises:
            StaleAttemptError: the attempt was revoked.
            StoreFullError: there is no room.
        """

    def publish(self, *, replace: bool = False) -> list[Published]:
        """Make all staged partitions visible, all durable, in the order in which they were staged.

        A crash leaves each target absent or whole. Readers never see a partial file. A concurrent
        publisher of the same content is adopted; of other content, refused. With ``replace`` the
        target's old content stands until the new one is whole, and a wish to restate is fulfilled
        that was there when the attempt was opened.

        Raises:
            ContentConflictError: a target already holds another digest.
            ForeignFileError: a target is no committed file.
            StaleAttemptError: the attempt was revoked; what it had not published stays unpublished.
            StoreFullError: there is no room.
        """


class Documents(Protocol):
    """Small texts that are kept beside the partitions, by folder and name."""

    def write(self, folder: str, texts: Mapping[str, str]) -> None:
        """Put documents in place, durably; what stands under the names is replaced.

        A crash leaves each absent, old or new; where nothing can be renamed, or cut short.
        """

    def read(self, folder: str, name: str) -> str | None:
        """Return a document, or None where there is none."""

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's documents, sorted."""

    def remove(self, folder: str, names: Iterable[str]) -> None:
        """Remove documents, durably; those that are gone are gone."""

    def location(self, folder: str, name: str) -> str:
        """Return where a document stands or would stand, for people to read."""


class PartitionStore(Protocol[TableT]):
    """Committed files, and the only one to know their paths."""

    @property
    def file_format(self) -> str:
        """What its files are, as the settings name it."""

    @property
    def documents(self) -> Documents:
        """The documents of this store."""

    def exists(self) -> bool:
        """Return whether the store was begun."""

    def prepare(self) -> None:
        """Begin the store, or check that it is the one that is meant.

        Raises:
            StoreUnreadableError: it cannot be written, or it holds other things.
            StoreUnsupportedError: other settings made it, or publishing there is not atomic.
        """

    def scan(self, catalogue: Catalogue, *, within: PartitionSet | None = None) -> Inventory:
        """Return what stands in the store.

        Args:
            within: Look only at the queries and days of this set, and name no strangers.

        Raises:
            StoreUnreadableError: a place cannot be read; it is never counted as missing.
        """

    def attempt(self, name: str) -> AbstractContextManager[Attempt[TableT]]:
        """Open an attempt; it is alive until the context or the process ends."""

    def is_alive(self, name: str) -> bool:
        """Return whether a process holds an attempt whose name begins with ``name``.

        Raises:
            StoreUnreadableError: nobody can tell, as the store is not there.
        """

    def revoke(self, name: str) -> int:
        """End every attempt whose name begins with ``name``: none can publish any more.

        Raises:
            StoreUnreadableError: the store is not there.
        """

    def sweep(self) -> int:
        """Remove what dead attempts left behind; return how many there were.

        Raises:
            StoreUnreadableError: the store is not there.
        """

    def read(self, partition: Partition) -> TableT:
        """Return a partition's rows.

        Raises:
            MissingPartitionError: it is not committed.
            CorruptPartitionError: its file is not what it should be.
        """

    def records(self, partitions: Iterable[Partition]) -> Mapping[Partition, CommitRecord]:
        """Return the commit records of committed partitions, without reading their rows."""

    def source_fingerprints(
        self, partitions: Iterable[Partition]
    ) -> Mapping[Partition, str | None]:
        """Return what the source's fingerprints were when committed partitions were made.

        Remembered between calls for files that did not change; those that are gone are left out,
        and a file that is damaged says None.
        """

    def commit_rate(self, partitions: Iterable[Partition], now: datetime) -> float:
        """Return how many of these were committed a second, lately; 0 where none was.

        An estimate for people, by the times of the files.

        Args:
            now: The real instant.
        """

    def verify(self, partition: Partition) -> CommitRecord:
        """Read a partition and check its schema, key, rows and digest.

        Raises:
            MissingPartitionError: it is not committed.
            CorruptPartitionError: its file is not what it should be.
        """

    def read_checked(self, partition: Partition) -> tuple[CommitRecord, TableT]:
        """Return a partition's commit record and its rows, of one moment, checked as by ``verify``.

        Raises:
            MissingPartitionError: it is not committed.
            CorruptPartitionError: its file is not what it should be.
        """

    def hold(self, partitions: Sequence[Partition], reason: str) -> None:
        """Withdraw partitions until they are released; atomic for each."""

    def hold_reason(self, partition: Partition) -> str | None:
        """Return why a partition is held, or None where it is not."""

    def release(self, partitions: Sequence[Partition]) -> None:
        """Make held partitions missing again."""

    def ask_to_restate(self, partitions: Sequence[Partition]) -> None:
        """Have committed partitions made again: each stands as it is until its new file does.

        The wish stands in the store until the partition was published again with ``replace``.
        """

    def leftovers(self, catalogue: Catalogue, latest_closed_day: date) -> Leftovers:
        """Return what stands in the store for a catalogue and is not asked for any more.

        Raises:
            StoreUnreadableError: a place cannot be read; nothing may be removed then.
        """

    def remove(self, leftovers: Sequence[Leftover]) -> int:
        """Remove leftovers, durably; return how many went. A crash leaves each there or gone."""

    def location(self, partition: Partition) -> str:
        """Return where a partition's file stands or would stand, for people to read."""
