"""One attempt on a local directory: staging files, and publishing a group of them.

The order of a publish is its guarantee: files durable, then names, then folders durable, and only
then is anything reported.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.core.errors import (
    ContentConflictError,
    CorruptPartitionError,
    ForeignFileError,
    PublishRefusedError,
)
from backfill_assets.core.store import Published
from backfill_assets.stores.files.attempts import stale
from backfill_assets.stores.files.durability import translated
from backfill_assets.stores.files.layout import is_regular_file
from backfill_assets.stores.tables import conform, record_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    import pyarrow as pa

    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import CommitRecord
    from backfill_assets.stores.files.durability import Flusher
    from backfill_assets.stores.formats import FileFormat


@dataclass(frozen=True, slots=True)
class _Staged:
    partition: Partition
    record: CommitRecord
    path: str
    target: str
    size: int


class LocalAttempt:
    """An attempt whose files are in its own directory until they are published.

    Args:
        directory: The attempt's directory; when it is gone, the attempt was revoked.
        target_of: Where a partition's file goes.
        wish_of: Where the wish to restate a partition stands.
    """

    def __init__(
        self,
        directory: Path,
        file_format: FileFormat,
        flusher: Flusher,
        target_of: Callable[[Partition], str],
        wish_of: Callable[[Partition], str],
    ) -> None:
        self._directory = directory
        self._format = file_format
        self._flusher = flusher
        self._target_of = target_of
        self._wish_of = wish_of
        self._staged: list[_Staged] = []
        self._count = 0
        self._folders: set[str] = set()  # known to exist

    @property
    def name(self) -> str:
        """The attempt's name; its run id first."""
        return self._directory.name

    def stage(
        self, partition: Partition, table: pa.Table | pd.DataFrame, *, source: str | None = None
    ) -> None:
        """Write a partition's file into the attempt's directory; see ``core.store.Attempt``.

        Raises:
            SourceError: the rows do not fit the declared schema.
            StaleAttemptError: the attempt was revoked.
            StoreFullError: there is no room.
        """
        rows = conform(partition, table)
        record = record_of(partition, rows, source=source)
        content = self._format.encode(rows, record)
        path = f"{self._directory}/{self._count}{self._format.suffix}"
        self._count += 1
        self._write(path, content)
        target = self._target_of(partition)
        self._staged.append(_Staged(partition, record, path, target, len(content)))

    def publish(self, *, replace: bool = False) -> list[Published]:
        """Make all staged partitions visible, all durable; see ``core.store.Attempt``."""
        staged, self._staged = self._staged, []
        if not staged:
            return []
        self._flush_content(staged)
        # Every folder before the first name: a full disk stops the group before any of it is seen.
        touched = self._make_folders(staged)
        published: list[Published] = []
        refusals: list[PublishRefusedError] = []
        for file in staged:
            try:
                published.append(self._make_visible(file, replace=replace))
            except PublishRefusedError as refusal:
                refusals.append(refusal)
        self._flusher.flush(touched)
        self._remove(staged)
        if replace:
            self._fulfil_wishes(published)
        if refusals:
            raise _together(refusals, published)
        return published

    def _write(self, path: str, content: memoryview) -> None:
        with translated("writing"):
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileNotFoundError:
                raise stale(self._directory) from None
            try:
                while content:
                    content = content[os.write(descriptor, content) :]
            finally:
                os.close(descriptor)

    def _flush_content(self, staged: list[_Staged]) -> None:
        try:
            self._flusher.flush(file.path for file in staged)
        except FileNotFoundError:
            raise stale(self._directory) from None

    def _make_visible(self, file: _Staged, *, replace: bool) -> Published:
        try:
            # link, not rename: it fails when the name is taken, so the first commit wins.
            self._link(file.path, file.target)
        except (FileExistsError, NotADirectoryError):
            return self._settle(file, replace=replace)
        return Published(file.partition, file.record, file.size, adopted=False)

    def _link(self, source: str, target: str) -> None:
        with translated("publishing"):
            try:
                os.link(source, target)
            except FileNotFoundError:
                if not self._directory.is_dir():
                    raise stale(self._directory) from None
                # Somebody removed the day's folder since it was last seen.
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                self._link_once_more(source, target)

    def _link_once_more(self, source: str, target: str) -> None:
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise stale(self._directory) from None

    def _settle(self, file: _Staged, *, replace: bool) -> Published:
        """Adopt, replace or refuse what stands at the target already."""
        found = self._record_at(file)
        is_same = (found.rows, found.digest) == (file.record.rows, file.record.digest)
        # To restate also mends: the record of a damaged file still says what the file once held.
        if is_same and not (replace and _differ(file.path, file.target)):
            return Published(file.partition, file.record, file.size, adopted=True)
        if not replace:
            message = (
                f"{file.target} already holds {found.rows} rows with digest {found.digest}, and "
                f"this attempt made {file.record.rows} rows with digest {file.record.digest}: the "
                "source is not deterministic, or it changed. Restate the partition to replace it"
            )
            raise ContentConflictError(message)
        with translated("replacing"):
            try:
                Path(file.path).replace(file.target)
            except FileNotFoundError:
                raise stale(self._directory) from None
        return Published(file.partition, file.record, file.size, adopted=is_same)

    def _record_at(self, file: _Staged) -> CommitRecord:
        """Return the commit record of the same partition at the target, or refuse to touch it."""
        path = Path(file.target)
        with translated("reading"):
            if not is_regular_file(file.target):
                raise _foreign(file.target, "no regular file")
            content = path.read_bytes()
        try:
            found = self._format.record(content, path)
        except CorruptPartitionError as error:
            raise _foreign(file.target, str(error)) from error
        if (found.partition, found.version) != (file.record.partition, file.record.version):
            raise _foreign(file.target, f"the file of {found.partition}, version {found.version}")
        return found

    def _make_folders(self, staged: list[_Staged]) -> set[str]:
        """Make the folders of the targets; return those in which names will be new."""
        folders = {os.path.dirname(file.target) for file in staged}  # noqa: PTH120 - for speed
        touched = set(folders)
        for folder in folders - self._folders:
            path = Path(folder)
            missing = [path, *(p for p in path.parents if not p.is_dir())]
            touched.update(str(p.parent) for p in missing)  # a new folder's name is durable too
            # Where something else has the name, the link says so, and only its file is refused.
            with translated("making"), suppress(FileExistsError, NotADirectoryError):
                path.mkdir(parents=True, exist_ok=True)
        self._folders |= folders
        return touched

    def _fulfil_wishes(self, published: list[Published]) -> None:
        """Remove the wishes to restate, after the new content is durable: a crash repeats it."""
        for file in published:
            with translated("fulfilling"), suppress(FileNotFoundError):
                os.unlink(self._wish_of(file.partition))  # noqa: PTH108 - text, for speed

    def _remove(self, staged: list[_Staged]) -> None:
        for file in staged:
            try:
                os.unlink(file.path)  # noqa: PTH108 - text, for speed
            except FileNotFoundError:
                continue  # replaced its target, or was revoked in the same moment


def _differ(one: str, other: str) -> bool:
    try:
        return Path(one).read_bytes() != Path(other).read_bytes()
    except FileNotFoundError:
        return True  # the attempt was revoked or the target removed; replacing tells which


def _together(
    refusals: list[PublishRefusedError], published: list[Published]
) -> PublishRefusedError:
    """Return the first refusal, which names the others and what was published all the same."""
    first, *others = refusals
    first.published = published
    for other in others:
        first.add_note(str(other))
    return first


def _foreign(target: str, found: str) -> ForeignFileError:
    return ForeignFileError(
        f"{target} is not ours to touch: {found}. It was left alone; move it away, and the next "
        "tick publishes the partition"
    )
