"""Scanning a day under the marker protocol: names in bulk, and the small markers among them.

A partition is committed when its highest whole marker names a data file that stands in the same
folder; the content is for ``verify``. Reported as strangers are files that are no markers under a
marker's name, and data files that a later commit has superseded. A data file above every marker is
not: an attempt is about to commit it, or died before, and the partition's next commit removes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backfill_assets.stores.files.layout import HOLD_SUFFIX, RESTATE_SUFFIX
from backfill_assets.stores.files.markers import (
    is_own,
    look,
    marker_in,
    marker_name,
    read_marker,
)

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.stores.files.markers import DayFiles, Marker, UnitFiles
    from backfill_assets.stores.files.scanning import Findings


@dataclass(slots=True)
class _Seen:
    """What one look at a day's folder found.

    Attributes:
        masks: Committed, held and to be restated.
        doubtful: Markers whose data was not listed: it is being switched, or it was removed.
    """

    masks: list[int] = field(default_factory=lambda: [0, 0, 0])
    strangers: list[str] = field(default_factory=list)
    doubtful: set[tuple[str, int]] = field(default_factory=set)


class MarkerDayScan:
    """Reads the days of one catalogue; a ``DayScan``."""

    def __init__(self, catalogue: Catalogue, suffix: str) -> None:
        self._suffix = suffix
        self._bits = {s: catalogue.unit_bits[unit] for unit, s in catalogue.unit_segments.items()}
        self._names = {
            segment + kind_suffix: (kind, bit)
            for segment, bit in self._bits.items()
            for kind, kind_suffix in ((1, HOLD_SUFFIX), (2, RESTATE_SUFFIX))
        }

    def __call__(self, folder: str, found: Findings) -> list[int]:
        """Return the masks of the units that are committed, held, and to be restated."""
        seen = self._look(folder)
        while seen.doubtful:
            before, seen = seen, self._look(folder)
            if seen.doubtful == before.doubtful:
                break  # nobody is switching anything: the data was removed
        for path in seen.strangers:
            found.add(path)
        return seen.masks

    def _look(self, folder: str) -> _Seen:
        seen = _Seen()
        files = look(folder, self._suffix)
        self._see_others(seen, files)
        for segment, unit in files.units.items():
            self._see_unit(seen, folder, segment, unit)
        return seen

    def _see_others(self, seen: _Seen, files: DayFiles) -> None:
        for entry in files.others:
            known = self._names.get(entry.name)
            if known is not None and entry.is_file(follow_symlinks=False):
                kind, bit = known
                seen.masks[kind] |= bit
            else:
                seen.strangers.append(entry.path)

    def _see_unit(self, seen: _Seen, folder: str, segment: str, unit: UnitFiles) -> None:
        bit = self._bits.get(segment)
        if bit is None:  # the catalogue has no such unit
            markers = [marker_name(segment, number) for number in unit.markers]
            seen.strangers += [f"{folder}/{name}" for name in (*markers, *unit.data)]
            return
        marker = self._highest_whole(seen, folder, segment, unit)
        if marker is None:
            return
        if marker.data in unit.data:
            seen.masks[0] |= bit
        else:
            seen.doubtful.add((segment, marker.number))
        if len(unit.data) > (marker.data in unit.data):
            seen.strangers += [
                f"{folder}/{name}"
                for name, number in unit.data.items()
                if number <= marker.number and name != marker.data
            ]

    def _highest_whole(
        self, seen: _Seen, folder: str, segment: str, unit: UnitFiles
    ) -> Marker | None:
        """Return the marker that counts, and note the files that only have a marker's name."""
        highest = None
        for number in sorted(unit.markers, reverse=True):
            content = read_marker(folder, segment, number)
            marker = marker_in(content, segment, number, self._suffix)
            if marker is not None:
                highest = highest or marker
            elif not content:
                seen.doubtful.add((segment, number))  # being written, or just removed
            elif not is_own(content, segment, number, self._suffix):
                seen.strangers.append(f"{folder}/{marker_name(segment, number)}")
        return highest
