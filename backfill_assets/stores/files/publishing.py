"""One attempt on a local directory: staging files, and publishing a group of them.

The order of a publish is its guarantee: files durable, then names, then folders durable, and only
then is anything reported. What makes a file visible is the commit protocol's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from backfill_assets.core.errors import (
    ContentConflictError,
    CorruptPartitionError,
    ForeignFileError,
    PublishRefusedError,
)
from backfill_assets.stores.files.attempts import began_ns
from backfill_assets.stores.files.durability import translated
from backfill_assets.stores.files.layout import RESTATE_SUFFIX, is_regular_file
from backfill_assets.stores.tables import conform, record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd
    import pyarrow as pa

    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import CommitRecord, Published
    from backfill_assets.stores.files.durability import Flusher
    from backfill_assets.stores.formats import FileFormat


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of an attempt that nobody sees yet.

    Attributes:
        number: Its place in the order of staging, from 0.
        stem: Where the partition's files stand, up to the dot.
        size: In bytes.
    """

    number: int
    partition: Partition
    record: CommitRecord
    stem: str
    size: int


class Publisher(Protocol):
    """How one attempt's files become visible."""

    def stage(self, file: Staged, content: memoryview) -> None:
        """Keep a file's content where no reader looks.

        Raises:
            StaleAttemptError: the attempt was revoked.
            StoreFullError: there is no room.
        """

    def make_durable(self, group: Sequence[Staged], *, replace: bool) -> None:
        """Make the content of a group durable; none of it is visible yet.

        Raises:
            StaleAttemptError: the attempt was revoked.
            StoreFullError: there is no room.
        """

    def make_visible(self, file: Staged, *, replace: bool) -> Published:
        """Commit one file in one step, or adopt what stands there.

        Raises:
            ContentConflictError: other content is committed, and is not to be replaced.
            ForeignFileError: something that is no committed file stands in the way.
            StaleAttemptError: the attempt was revoked.
        """

    def commits(self, group: Sequence[Staged]) -> Iterable[str]:
        """Return the files by which a group is committed, to be made durable with its folders."""

    def tidy(self, group: Sequence[Staged]) -> None:
        """Remove what nobody needs once the group is committed durably."""


class LocalAttempt:
    """An attempt whose files nobody sees until they are published.

    Args:
        directory: Of the attempt; its name begins with the run id.
        stem_of: Where a partition's files stand, up to the dot.
    """

    def __init__(
        self,
        directory: Path,
        file_format: FileFormat,
        flusher: Flusher,
        publisher: Publisher,
        stem_of: Callable[[Partition], str],
    ) -> None:
        self.name = directory.name
        self._began_ns = began_ns(directory)
        self._format = file_format
        self._flusher = flusher
        self._publisher = publisher
        self._stem_of = stem_of
        self._staged: list[Staged] = []
        self._count = 0
        self._folders: set[str] = set()  # known to exist

    def stage(
        self, partition: Partition, table: pa.Table | pd.DataFrame, *, source: str | None = None
    ) -> None:
        """Put a partition's file where no reader looks; see ``core.store.Attempt``.

        Raises:
            SourceError: the rows do not fit the declared schema.
            StaleAttemptError: the attempt was revoked.
            StoreFullError: there is no room.
        """
        rows = conform(partition, table)
        record = record_of(partition, rows, source=source)
        self._stage(partition, record, self._format.encode(rows, record))

    def stage_file(
        self, partition: Partition, record: CommitRecord, content: bytes | memoryview
    ) -> None:
        """Stage a whole file as it is; see ``core.store.Attempt``.

        Raises:
            StaleAttemptError: the attempt was revoked.
            StoreFullError: there is no room.
        """
        self._stage(partition, record, memoryview(content))

    def _stage(self, partition: Partition, record: CommitRecord, content: memoryview) -> None:
        stem = self._stem_of(partition)
        file = Staged(self._count, partition, record, stem, len(content))
        self._count += 1
        self._publisher.stage(file, content)
        self._staged.append(file)

    def publish(self, *, replace: bool = False) -> list[Published]:
        """Make all staged partitions visible, all durable; see ``core.store.Attempt``."""
        staged, self._staged = self._staged, []
        if not staged:
            return []
        # Every folder before the first name: a full disk stops the group before any of it is seen.
        touched = self._make_folders(staged)
        self._publisher.make_durable(staged, replace=replace)
        published: list[Published] = []
        refusals: list[PublishRefusedError] = []
        for file in staged:
            try:
                published.append(self._publisher.make_visible(file, replace=replace))
            except PublishRefusedError as refusal:
                refusals.append(refusal)
        # Where something foreign stands in the way there is no folder.
        folders = filter(os.path.isdir, touched)
        self._flusher.flush([*folders, *self._publisher.commits(staged)])
        self._publisher.tidy(staged)
        if replace:
            self._fulfil_wishes(published)
        if refusals:
            raise _together(refusals, published)
        return published

    def _make_folders(self, staged: list[Staged]) -> set[str]:
        """Make the folders of the targets; return those in which names will be new."""
        folders = {os.path.dirname(file.stem) for file in staged}  # noqa: PTH120 - for speed
        touched = set(folders)
        for folder in folders - self._folders:
            path = Path(folder)
            # Above a folder that stands, all stand.
            missing = [path, *takewhile(lambda parent: not parent.is_dir(), path.parents)]
            touched.update(str(p.parent) for p in missing)  # a new folder's name is durable too
            # Where something else has the name, publishing says so, and only its file is refused.
            with translated("making"), suppress(FileExistsError, NotADirectoryError):
                path.mkdir(parents=True, exist_ok=True)
        self._folders |= folders
        return touched

    def _fulfil_wishes(self, published: list[Published]) -> None:
        """Remove the wishes to restate, after the new content is durable: a crash repeats it.

        One that came when the attempt had begun stays: its rows may have been read before.
        """
        for file in published:
            wish = self._stem_of(file.partition) + RESTATE_SUFFIX
            with translated("fulfilling"), suppress(FileNotFoundError):
                if not is_regular_file(wish):
                    continue  # there is none, or something else has its name
                if os.stat(wish).st_mtime_ns <= self._began_ns:  # noqa: PTH116 - text, for speed
                    os.unlink(wish)  # noqa: PTH108 - text, for speed
                else:
                    os.utime(wish)  # from a clock that was fast, it would outlive every attempt


def record_at(
    place: str, content: bytes, file_format: FileFormat, record: CommitRecord
) -> CommitRecord:
    """Return what a file at a target says of the same partition, or refuse to touch it.

    Raises:
        ForeignFileError: it is no committed file of that partition.
    """
    try:
        found = file_format.record(content, Path(place))
    except CorruptPartitionError as error:
        raise foreign(place, str(error)) from error
    if (found.partition, found.version) != (record.partition, record.version):
        raise foreign(place, f"the file of {found.partition}, version {found.version}")
    return found


def conflict(place: str, found: CommitRecord, made: CommitRecord) -> ContentConflictError:
    """Return the error of a target that holds other content."""
    return ContentConflictError(
        f"{place} already holds {found.rows} rows with digest {found.digest}, and "
        f"this attempt made {made.rows} rows with digest {made.digest}: the "
        "source is not deterministic, or it changed. Restate the partition to replace it"
    )


def foreign(place: str, found: str) -> ForeignFileError:
    """Return the error of something that stands at a target and is not ours."""
    return ForeignFileError(
        f"{place} is not ours to touch: {found}. It was left alone; move it away, and the next "
        "tick publishes the partition"
    )


def _together(
    refusals: list[PublishRefusedError], published: list[Published]
) -> PublishRefusedError:
    """Return the first refusal, which names the others and what was published all the same."""
    first, *others = refusals
    first.published = published
    for other in others:
        first.add_note(str(other))
    return first
