"""Publishing an attempt's files by markers.

A group's data files are written under names of their own and made durable; then each marker is
*claimed* by creating its name, which one process alone can do, and written in one piece. Between
the two, the attempt must still be open, and no marker below may have become whole meanwhile: so
the first commit wins, and two writers never mix.

What remains open, since such a file system has no step that is both exclusive and whole: an attempt
that is revoked after that check and before its write still commits that one partition, as if just
before it was revoked, unless its successor has committed the partition already. And of two writers
that both stop between claim and write, the later may follow the earlier without having been asked
to replace it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.core.errors import (
    PublishRefusedError,
    StoreError,
    StoreUnsupportedError,
)
from backfill_assets.core.store import Published
from backfill_assets.stores.files.attempts import is_open, stale
from backfill_assets.stores.files.durability import translated
from backfill_assets.stores.files.layout import is_regular_file
from backfill_assets.stores.files.markers import (
    Marker,
    UnitFiles,
    committed_in,
    look,
    marker_at,
    marker_name,
    remove_marker,
)
from backfill_assets.stores.files.publishing import conflict, foreign, record_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from backfill_assets.core.store import CommitRecord
    from backfill_assets.stores.files.durability import Flusher
    from backfill_assets.stores.files.publishing import Staged
    from backfill_assets.stores.formats import FileFormat


@dataclass(frozen=True, slots=True)
class _Draft:
    """A data file that stands, and the marker that would commit it.

    Attributes:
        seen: What stood of the unit when the number was chosen.
        before: The number of the commit that it would follow; 0 for none.
        is_same: Whether it has the same rows as that commit.
    """

    marker: Marker
    seen: UnitFiles
    before: int
    is_same: bool


@dataclass(frozen=True, slots=True)
class _Settled:
    """A partition that needs no commit: it is adopted or refused, for what stands there.

    Attributes:
        marker: The one that counts; None where something foreign is in the way.
    """

    outcome: Published | PublishRefusedError
    marker: Marker | None
    seen: UnitFiles


class MarkerPublisher:
    """Publishes an attempt's files by markers.

    Args:
        attempt: The attempt's directory; when its lock is gone, the attempt was revoked.
    """

    def __init__(self, attempt: Path, file_format: FileFormat, flusher: Flusher) -> None:
        self._attempt = attempt
        self._format = file_format
        self._flusher = flusher
        self._contents: dict[int, memoryview] = {}  # by the number of staging
        self._plans: dict[int, _Draft | _Settled] = {}
        self._lost: list[tuple[int, Marker]] = []  # whose number somebody else took

    def stage(self, file: Staged, content: memoryview) -> None:
        """Keep a file's content in memory: what cannot be renamed would be written twice."""
        self._check_open()
        self._contents[file.number] = content

    def make_durable(self, group: Sequence[Staged], *, replace: bool) -> None:
        """Write and flush the data files of a group; no marker names them yet."""
        self._check_open()
        folders = {os.path.dirname(file.stem) for file in group}  # noqa: PTH120 - text, for speed
        self._refuse_other_devices(folders)
        days = {folder: look(folder, self._format.suffix) for folder in folders}
        try:
            for file in group:
                folder, segment = os.path.split(file.stem)
                seen = days[folder].units.get(segment, UnitFiles())
                self._plans[file.number] = self._plan(file, seen, replace=replace)
            self._flush(group)
        except StoreError:
            self._abandon(group)
            raise

    def make_visible(self, file: Staged, *, replace: bool) -> Published:
        """Commit a file by its marker, or settle with what stands there."""
        folder, segment = os.path.split(file.stem)
        plan = self._plans[file.number]
        while isinstance(plan, _Draft) and not self._commit(folder, segment, plan):
            self._lost.append((file.number, plan.marker))
            seen = look(folder, self._format.suffix).units.get(segment, UnitFiles())
            plan = self._plans[file.number] = self._plan(file, seen, replace=replace)
            self._flush([file])
        if isinstance(plan, _Draft):
            return Published(file.partition, file.record, file.size, adopted=plan.is_same)
        if isinstance(plan.outcome, PublishRefusedError):
            raise plan.outcome
        return plan.outcome

    def commits(self, group: Sequence[Staged]) -> list[str]:
        """Return the markers of a group, and the files of others that it adopts."""
        paths = []
        for file in group:
            folder, segment = os.path.split(file.stem)
            plan = self._plans[file.number]
            if plan.marker is not None:
                paths.append(f"{folder}/{marker_name(segment, plan.marker.number)}")
                if isinstance(plan, _Settled):
                    paths.append(f"{folder}/{plan.marker.data}")
        return paths

    def tidy(self, group: Sequence[Staged]) -> None:
        """Remove superseded data files, cut-off markers, and all whole markers but one.

        The marker before the one that counts stays: whoever lists the folder while it is switched
        finds one of the two.
        """
        stems = {file.number: file.stem for file in group}
        with translated("removing"):
            for number, lost in self._lost:
                standing = self._plans[number].marker
                if standing is not None and standing.data != lost.data:
                    _remove_data(stems[number], lost.data)
            for number, stem in stems.items():
                plan = self._plans.pop(number)
                del self._contents[number]
                if plan.marker is not None:
                    self._remove_superseded(stem, plan.seen, plan.marker)
        self._lost.clear()

    def _plan(self, file: Staged, seen: UnitFiles, *, replace: bool) -> _Draft | _Settled:
        """Settle a file with what stands there, or write its data under the next number."""
        folder, segment = os.path.split(file.stem)
        suffix = self._format.suffix
        with translated("reading"):
            standing = committed_in(folder, segment, seen.markers, suffix)
        content = self._contents[file.number]
        marker = Marker.of(segment, seen.last_number + 1, content, suffix)
        try:
            found = None if standing is None else self._record_of(file, folder, standing)
            is_same = found is not None and found.is_same_content(file.record)
            if standing is not None and found is not None:
                if is_same and not (replace and marker.sha256 != standing.sha256):
                    adopted = Published(file.partition, file.record, file.size, adopted=True)
                    return _Settled(adopted, standing, seen)
                if not replace:
                    raise conflict(f"{folder}/{standing.data}", found, file.record)
            _write_data(f"{folder}/{marker.data}", content)
        except PublishRefusedError as refusal:
            return _Settled(refusal, standing, seen)
        return _Draft(marker, seen, standing.number if standing else 0, is_same)

    def _record_of(self, file: Staged, folder: str, standing: Marker) -> CommitRecord | None:
        """Return what is committed, or None where the data is not what its marker says.

        Raises:
            ForeignFileError: it is another partition's file.
        """
        place = f"{folder}/{standing.data}"
        with translated("reading"):
            content = _content(place)
        if not standing.describes(content):
            return None
        return record_at(place, content, self._format, file.record)

    def _commit(self, folder: str, segment: str, draft: _Draft) -> bool:
        """Claim a draft's marker and write it; return whether it counts.

        A claim that is given up stays as a marker that is not whole: its number is spent.
        """
        number = draft.marker.number
        with translated("committing"):
            try:
                path = f"{folder}/{marker_name(segment, number)}"
                claim = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except (FileExistsError, FileNotFoundError):
                self._check_open()
                return False  # the number is taken, or the folder was removed: look again
            try:
                self._check_open()
                between = range(draft.before + 1, number)
                if any(self._is_whole(folder, segment, lower) for lower in between):
                    return False  # a marker that was not whole has become so: it was first
                _write(claim, memoryview(draft.marker.text()))
            finally:
                os.close(claim)
            # Had this process stopped half-way, another one would have passed over its marker.
            return not self._is_whole(folder, segment, number + 1)

    def _is_whole(self, folder: str, segment: str, number: int) -> bool:
        if not is_regular_file(f"{folder}/{marker_name(segment, number)}"):
            return False
        return marker_at(folder, segment, number, self._format.suffix) is not None

    def _remove_superseded(self, stem: str, seen: UnitFiles, marker: Marker) -> None:
        folder, segment = os.path.split(stem)
        for name, number in seen.data.items():
            if number <= marker.number and name != marker.data:
                _remove_data(stem, name)
        below = [number for number in seen.markers if number < marker.number]
        kept = committed_in(folder, segment, below, self._format.suffix)
        for number in below:
            if kept is None or number != kept.number:
                remove_marker(folder, segment, number, self._format.suffix)

    def _flush(self, group: Sequence[Staged]) -> None:
        """Flush the data files of those of a group that are to be committed."""
        drafts = {f.stem: p for f in group if isinstance(p := self._plans[f.number], _Draft)}
        folders = {os.path.dirname(stem) for stem in drafts}  # noqa: PTH120 - text, for speed
        paths = {f"{Path(stem).parent}/{draft.marker.data}" for stem, draft in drafts.items()}
        if drafts:
            self._flusher.flush([*paths, *folders])

    def _abandon(self, group: Sequence[Staged]) -> None:
        """Remove data files that are not going to be committed; a full disk needs the room."""
        for file in group:
            plan = self._plans.pop(file.number, None)
            if isinstance(plan, _Draft):
                _remove_data(file.stem, plan.marker.data)

    def _refuse_other_devices(self, folders: Iterable[str]) -> None:
        """Refuse folders that a flush of the store's own file system would not make durable."""
        with translated("reading"), suppress(FileNotFoundError, NotADirectoryError):
            device = os.stat(self._attempt).st_dev  # noqa: PTH116 - as below
            for folder in folders:
                if os.path.isdir(folder) and os.stat(folder).st_dev != device:  # noqa: PTH112, PTH116 - text, for speed
                    raise StoreUnsupportedError(
                        f"{folder} is on another device than the store's .attempts folder, and "
                        "nothing would make it durable; keep the whole store on one file system"
                    )

    def _check_open(self) -> None:
        if not is_open(self._attempt):
            raise stale(self._attempt)


def _write_data(path: str, content: memoryview) -> None:
    """Write a data file that no marker names.

    Its name says its content, so whatever stands there is the same, or a part of it that a crash
    or a writer at work has left: it is completed in place and never cut, since others may commit it
    at any moment.

    Raises:
        ForeignFileError: something that is no regular file stands there or in the way.
    """
    with translated("writing"):
        while (descriptor := _create(path)) is None:
            if not os.path.lexists(path):
                continue  # whoever gave up its number removed it just now
            if not is_regular_file(path):
                raise foreign(path, "no regular file")
            with suppress(FileNotFoundError):  # or now
                return _complete(path, content)
        try:
            _write(descriptor, content)
        except OSError:
            _unlink(path)
            raise
        finally:
            os.close(descriptor)
    return None


def _create(path: str) -> int | None:
    """Create a file for writing; return None where its name is taken."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    folder = Path(path).parent
    try:
        try:
            return os.open(path, flags, 0o644)
        except FileNotFoundError:  # somebody removed the day's folder since it was last seen
            folder.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o644)
    except (FileExistsError, NotADirectoryError):
        if folder.is_dir():
            return None
        raise foreign(path, f"{folder} is no folder") from None


def _complete(path: str, content: memoryview) -> None:
    if Path(path).read_bytes() == content:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        _write(descriptor, content)
        os.truncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _content(path: str) -> bytes:
    """Return the content of a regular file; nothing, which no marker describes, where none is."""
    if not is_regular_file(path):
        return b""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""  # it was superseded in this moment


def _write(descriptor: int, content: memoryview) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _remove_data(stem: str, name: str) -> None:
    _unlink(f"{os.path.dirname(stem)}/{name}")  # noqa: PTH120 - text, for speed


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - text, for speed
