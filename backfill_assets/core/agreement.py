"""Whether the log database agrees with the files, and how to mend the rows of a released day.

The files are right. Rows are mended from them; where the files of a complete day are not what was
released, the day is released anew, because its readers and subscribers must hear of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from backfill_assets.core.store import CommitRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backfill_assets.core.releases import Manifest

Records = dict[str, CommitRecord]


class Fault(StrEnum):
    """What can be amiss with a partition of a released day, with the day, or with an attempt."""

    ROWS_WITHOUT_FILE = "rows without a file"
    FILE_WITHOUT_ROWS = "file without rows"
    OTHER_COUNT = "another number of rows than the file"
    OTHER_CONTENT = "other content than the file"
    MADE_AGAIN = "file made again since the release"
    NO_MANIFEST = "no whole manifest"
    OTHER_MANIFEST = "manifest of other content"
    NO_RELEASE = "rows that no release stands for"
    UNSOUND_FILE = "file that cannot be read"
    AT_WORK = "at work in the log by a dead run, though the file stands"
    OTHER_DIGEST = "completed in the log with other content than the file"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing amiss; ``name`` is a partition, or ``catalogue/day``."""

    fault: Fault
    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" if self.detail else self.name


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A partition in the database: what was loaded, and what its rows are now."""

    recorded: CommitRecord
    found: CommitRecord

    @property
    def is_changed(self) -> bool:
        """Whether somebody changed the rows since they were loaded."""
        return not self.recorded.is_same_content(self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedDay:
    """One released day, as files, rows and manifest tell of it.

    Attributes:
        name: ``catalogue/day``.
        files: What the files say about themselves, by partition.
        stored: What the database has, by partition.
        manifest: The release's, or None where there is no whole one.
        is_complete: Whether every expected partition is committed.
    """

    name: str
    files: Mapping[str, CommitRecord]
    stored: Mapping[str, StoredPartition]
    manifest: Manifest | None
    is_complete: bool

    def findings(self) -> list[Finding]:
        """Return what does not agree, partition by partition."""
        found = []
        for name in sorted(self.files.keys() | self.stored.keys()):
            found += self._findings_of(name)
        if self.manifest is None:
            found.append(Finding(Fault.NO_MANIFEST, self.name))
        elif self._says_otherwise(self._manifest_records):
            found.append(Finding(Fault.OTHER_MANIFEST, self.name))
        return found

    def _says_otherwise(self, manifest: Records) -> bool:
        """Return whether a manifest differs from what was loaded, but for rows that are lost."""
        lost = self.files.keys() - self.stored.keys()
        kept = {name: record for name, record in manifest.items() if name not in lost}
        return _contents(kept) != _contents(self._recorded)

    @property
    def is_made_again(self) -> bool:
        """Whether the files are complete, and not what was released."""
        return self.is_complete and _contents(self.files) != _contents(self._released)

    @property
    def to_load(self) -> list[str]:
        """The partitions whose rows are to be made what the files say."""
        if not self.is_complete or self.is_made_again:
            return []
        return [name for name, file in self.files.items() if not self._agrees(name, file)]

    @property
    def to_remove(self) -> list[str]:
        """The partitions whose rows are to go, because there is no file."""
        return sorted(self.stored.keys() - self.files.keys())

    @property
    def lacks_manifest(self) -> bool:
        """Whether the manifest of what stands released is to be written again."""
        has_it = self.manifest is not None
        return self.is_complete and not self.is_made_again and not has_it

    @property
    def _recorded(self) -> Records:
        return {name: stored.recorded for name, stored in self.stored.items()}

    @property
    def _manifest_records(self) -> Records:
        records = self.manifest.records if self.manifest is not None else ()
        return {record.partition: record for record in records}

    @property
    def _released(self) -> Records:
        """What was released: the manifest says it, and without one the record of the rows does."""
        return self._recorded if self.manifest is None else self._manifest_records

    def _agrees(self, name: str, file: CommitRecord) -> bool:
        stored = self.stored.get(name)
        if stored is None:
            return False
        same = stored.recorded.version == file.version and file.is_same_content(stored.recorded)
        return same and not stored.is_changed

    def _findings_of(self, name: str) -> list[Finding]:
        file, stored = self.files.get(name), self.stored.get(name)
        if file is None:
            return [Finding(Fault.ROWS_WITHOUT_FILE, name)]
        if stored is None:
            return [Finding(Fault.FILE_WITHOUT_ROWS, name)]
        if self._agrees(name, file):
            return []
        found = stored.found
        if not stored.is_changed:
            detail = f"version {file.version}, digest {file.digest}, released {found.digest}"
            return [Finding(Fault.MADE_AGAIN, name, detail)]
        if found.rows != file.rows:
            detail = f"{found.rows} rows, and {file.rows} in the file"
            return [Finding(Fault.OTHER_COUNT, name, detail)]
        detail = f"digest {found.digest}, and {file.digest} of the file"
        return [Finding(Fault.OTHER_CONTENT, name, detail)]


def _contents(records: Mapping[str, CommitRecord]) -> dict[str, tuple[int, int, str]]:
    return {name: (r.version, r.rows, r.digest) for name, r in records.items()}


@dataclass(slots=True)
class Agreement:
    """What one look at the log database and the files of a catalogue found, and what was mended.

    Attributes:
        unlogged: How many committed partitions the log of attempts has not as completed; None
            where there is no such log.
    """

    findings: list[Finding] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    unlogged: int | None = None

    def add(self, other: Agreement) -> None:
        """Take in what another look at the same catalogue found."""
        self.findings += other.findings
        self.repairs += other.repairs
        self.unlogged = other.unlogged if self.unlogged is None else self.unlogged

    def by_fault(self) -> dict[str, list[str]]:
        """Return the findings in words, by kind; kinds without any are left out."""
        kinds = {str(fault): [str(f) for f in self.findings if f.fault is fault] for fault in Fault}
        return {kind: found for kind, found in kinds.items() if found}
