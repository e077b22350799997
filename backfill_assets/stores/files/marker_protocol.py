"""Committing by markers, where nothing can be linked or renamed: finding, reading, withdrawing.

``markers`` says what stands in a folder and means what; ``marker_publishing`` puts it there.

Readers see the old content or the new, never neither: the new data and its marker are durable
before the old data goes, the old marker stays until the next commit, and a reader that finds a
marker without the data it names looks again. A reader that has opened old data reads it to its end
on a file system that keeps removed files open; elsewhere its size or digest is wrong, and it looks
again as well. Only a partition that is replaced twice while one folder is listed may look missing
to that one look.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.core.errors import CorruptPartitionError
from backfill_assets.stores.files import attempts, identity
from backfill_assets.stores.files.durability import translated
from backfill_assets.stores.files.layout import is_regular_file
from backfill_assets.stores.files.marker_publishing import MarkerPublisher
from backfill_assets.stores.files.marker_scanning import MarkerDayScan
from backfill_assets.stores.files.markers import (
    UnitFiles,
    committed_in,
    look,
    parse_name,
    remove_marker,
)
from backfill_assets.stores.files.probe import prove_markers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.stores.files.durability import Flusher
    from backfill_assets.stores.files.markers import Marker
    from backfill_assets.stores.files.scanning import DayScan
    from backfill_assets.stores.formats import FileFormat


class MarkerProtocol:
    """The commit protocol of file systems without atomic links or renames."""

    name = "marker"
    names_say_all = False
    prove = staticmethod(prove_markers)
    end_attempt = staticmethod(attempts.remove_lock)
    place_identity = staticmethod(identity.place_by_number)

    def __init__(self, file_format: FileFormat) -> None:
        self._format = file_format

    def publisher(self, attempt: Path, flusher: Flusher) -> MarkerPublisher:
        """Return how an attempt's files become visible."""
        return MarkerPublisher(attempt, self._format, flusher)

    def day_scan(self, catalogue: Catalogue) -> DayScan:
        """Return how a day of a catalogue is read."""
        return MarkerDayScan(catalogue, self._format.suffix)

    def segment_of(self, name: str) -> str | None:
        """Return the segment of the unit whose data file, or marker, has a name."""
        parsed = parse_name(name, self._format.suffix)
        return parsed[0] if parsed else None

    def location(self, stem: str) -> str:
        """Return the path of a committed data file, or a pattern where there is none."""
        with translated("reading"):
            marker = self._marker(stem, self._files(stem))
        return self._data(stem, marker) if marker else f"{stem}.*{self._format.suffix}"

    def content(self, stem: str) -> tuple[Path, bytes] | None:
        """Return a committed file's path and content, as its marker says they are."""
        before = None
        while True:
            files = self._files(stem)
            marker = self._marker(stem, files)
            content = self._content(stem, marker) if marker else None
            if marker and content is not None and marker.describes(content):
                return Path(self._data(stem, marker)), content
            # Every switch leaves other names: two looks alike, and nobody switched it between.
            if (files, marker) == before:
                break
            before = (files, marker)
        if marker is None or content is None:
            return None
        message = (
            f"{self._data(stem, marker)} is not what its marker says; delete it and the next tick "
            "makes it again"
        )
        raise CorruptPartitionError(message)

    def remove(self, stems: Iterable[str]) -> None:
        """Withdraw data files, markers first; what is no file of ours is left alone."""
        for stem in stems:
            folder, segment = os.path.split(stem)
            files = self._files(stem)
            # Upwards: a crash must not leave an older marker as the highest whole one.
            for number in sorted(files.markers):
                remove_marker(folder, segment, number, self._format.suffix)
            for name in files.data:
                Path(folder, name).unlink(missing_ok=True)

    def write_holds(self, attempt: Path, texts: Mapping[Path, str], flusher: Flusher) -> None:  # noqa: ARG002 - CommitProtocol's
        """Write small files in place: a hold holds as soon as its name stands."""
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        flusher.flush(map(str, texts))

    def _marker(self, stem: str, files: UnitFiles) -> Marker | None:
        """Return the marker that counts among those that a look has shown."""
        folder, segment = os.path.split(stem)
        return committed_in(folder, segment, files.markers, self._format.suffix)

    def _data(self, stem: str, marker: Marker) -> str:
        return f"{os.path.dirname(stem)}/{marker.data}"  # noqa: PTH120 - text, for speed

    def _content(self, stem: str, marker: Marker) -> bytes | None:
        path = self._data(stem, marker)
        try:
            return Path(path).read_bytes() if is_regular_file(path) else None
        except FileNotFoundError:
            return None  # it was superseded in this moment

    def _files(self, stem: str) -> UnitFiles:
        folder, segment = os.path.split(stem)
        return look(folder, self._format.suffix).units.get(segment, UnitFiles())
