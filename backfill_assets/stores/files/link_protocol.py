"""Committing by links: a data file has its final name when, and only when, it is whole.

Files are written into the attempt's directory and linked to their targets from there, so revoking
an attempt takes away what it could publish. Needs hard links, and renames that replace.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.core.errors import CorruptPartitionError
from backfill_assets.core.store import Published
from backfill_assets.stores.files import attempts, identity
from backfill_assets.stores.files.attempts import stale
from backfill_assets.stores.files.durability import translated
from backfill_assets.stores.files.layout import is_regular_file
from backfill_assets.stores.files.probe import prove_links_and_renames
from backfill_assets.stores.files.publishing import conflict, foreign, record_at
from backfill_assets.stores.files.scanning import day_scan_by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.store import CommitRecord
    from backfill_assets.stores.files.durability import Flusher
    from backfill_assets.stores.files.publishing import Staged
    from backfill_assets.stores.files.scanning import DayScan
    from backfill_assets.stores.formats import FileFormat

_TRIES = 3  # what had the name may go while it is looked at


class LinkProtocol:
    """The commit protocol of file systems with atomic links and renames."""

    name = "link"
    names_say_all = True
    prove = staticmethod(prove_links_and_renames)
    end_attempt = staticmethod(attempts.rename_away)
    place_identity = staticmethod(identity.place_by_link)

    def __init__(self, file_format: FileFormat) -> None:
        self._format = file_format

    def publisher(self, attempt: Path, flusher: Flusher) -> LinkPublisher:
        """Return how an attempt's files become visible."""
        return LinkPublisher(attempt, self._format, flusher)

    def day_scan(self, catalogue: Catalogue) -> DayScan:
        """Return how a day of a catalogue is read."""
        return day_scan_by_name(catalogue, self._format.suffix)

    def segment_of(self, name: str) -> str | None:
        """Return the segment of the unit whose data file has a name."""
        segment, dot, rest = name.partition(".")
        return segment if dot + rest == self._format.suffix else None

    def location(self, stem: str) -> str:
        """Return the path of a partition's data file."""
        return stem + self._format.suffix

    def content(self, stem: str) -> tuple[Path, bytes] | None:
        """Return a committed file's path and content, or None where there is none."""
        path = Path(self.location(stem))
        if not is_regular_file(str(path)):
            return None
        try:
            return path, path.read_bytes()
        except FileNotFoundError:
            return None  # it went in this very moment

    def remove(self, stems: Iterable[str]) -> None:
        """Remove data files; what is no file of ours is left alone."""
        for stem in stems:
            if is_regular_file(self.location(stem)):
                Path(self.location(stem)).unlink(missing_ok=True)

    def write_holds(self, attempt: Path, texts: Mapping[Path, str], flusher: Flusher) -> None:
        """Put small files in place, each in one step."""
        drafts = [_draft(attempt, text) for text in texts.values()]
        flusher.flush(map(str, drafts))
        for draft, target in zip(drafts, texts, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            draft.replace(target)


class LinkPublisher:
    """Publishes an attempt's files by links.

    Args:
        attempt: The attempt's directory; when it is gone, the attempt was revoked.
    """

    def __init__(self, attempt: Path, file_format: FileFormat, flusher: Flusher) -> None:
        self._attempt = attempt
        self._format = file_format
        self._flusher = flusher

    def stage(self, file: Staged, content: memoryview) -> None:
        """Write a file into the attempt's directory."""
        with translated("writing"):
            try:
                descriptor = os.open(
                    self._source(file), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644
                )
            except FileNotFoundError:
                raise stale(self._attempt) from None
            try:
                while content:
                    content = content[os.write(descriptor, content) :]
            finally:
                os.close(descriptor)

    def make_durable(self, group: Sequence[Staged], *, replace: bool) -> None:  # noqa: ARG002 - Publisher's
        """Flush the files of a group."""
        try:
            self._flusher.flush(map(self._source, group))
        except FileNotFoundError:
            raise stale(self._attempt) from None

    def make_visible(self, file: Staged, *, replace: bool) -> Published:
        """Link a file to its target, or settle with what stands there."""
        target = self._target(file)
        for _ in range(_TRIES):
            try:
                # link, not rename: it fails when the name is taken, so the first commit wins.
                self._link(self._source(file), target)
            except (FileExistsError, NotADirectoryError):
                standing = self._standing(target, file.record)
                if standing is not None:
                    return self._settle(file, *standing, replace=replace)
            else:
                return Published(file.partition, file.record, file.size, adopted=False)
        raise foreign(target, "nothing stands there, and nothing can be put there")

    def commits(self, group: Sequence[Staged]) -> Sequence[str]:  # noqa: ARG002 - Publisher's
        """Return nothing: a link is an entry of its folder, and its content was flushed before."""
        return ()

    def tidy(self, group: Sequence[Staged]) -> None:
        """Remove the attempt's own names of what is published."""
        for file in group:
            try:
                os.unlink(self._source(file))  # noqa: PTH108 - text, for speed
            except FileNotFoundError:
                continue  # replaced its target, or was revoked in the same moment

    def _source(self, file: Staged) -> str:
        return f"{self._attempt}/{file.number}{self._format.suffix}"

    def _target(self, file: Staged) -> str:
        return file.stem + self._format.suffix

    def _link(self, source: str, target: str) -> None:
        with translated("publishing"):
            try:
                os.link(source, target)
            except FileNotFoundError:
                if not self._attempt.is_dir():
                    raise stale(self._attempt) from None
                # Somebody removed the day's folder since it was last seen.
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                self._link_once_more(source, target)

    def _link_once_more(self, source: str, target: str) -> None:
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise stale(self._attempt) from None

    def _settle(
        self, file: Staged, found: CommitRecord, content: bytes, *, replace: bool
    ) -> Published:
        """Adopt, replace or refuse what stands at the target already."""
        source, target = self._source(file), self._target(file)
        # To restate also mends: the record of a damaged file still says what the file once held.
        is_same = found.is_same_content(file.record)
        if is_same and not (replace and _differ(source, target)):
            return Published(file.partition, file.record, file.size, adopted=True)
        if not replace:
            raise conflict(target, found, file.record)
        # The same rows under another fingerprint of the source are unchanged; a mended file is new.
        is_unchanged = is_same and self._has_rows_of(file, content)
        with translated("replacing"):
            try:
                Path(source).replace(target)
            except FileNotFoundError:
                raise stale(self._attempt) from None
        return Published(file.partition, file.record, file.size, adopted=is_unchanged)

    def _standing(self, target: str, record: CommitRecord) -> tuple[CommitRecord, bytes] | None:
        """Return what a file at a target says of itself, and its content; or None if it is gone."""
        with translated("reading"):
            if not os.path.lexists(target):
                return None
            if not is_regular_file(target):
                raise foreign(target, "no regular file")
            try:
                content = Path(target).read_bytes()
            except FileNotFoundError:
                return None
        return record_at(target, content, self._format, record), content

    def _has_rows_of(self, file: Staged, content: bytes) -> bool:
        """Return whether a content can be read and has a file's rows, whatever its record says."""
        try:
            own = Path(self._source(file)).read_bytes()
            rows = [self._format.decode(c, Path(file.stem), file.partition) for c in (own, content)]
        except FileNotFoundError:
            raise stale(self._attempt) from None
        except CorruptPartitionError:
            return False
        return bool(rows[0].equals(rows[1]))


def _draft(attempt: Path, text: str) -> Path:
    draft = attempt / uuid.uuid4().hex
    draft.write_text(text, encoding="utf-8")
    return draft


def _differ(one: str, other: str) -> bool:
    try:
        return Path(one).read_bytes() != Path(other).read_bytes()
    except FileNotFoundError:
        return True  # the attempt was revoked or the target removed; replacing tells which
