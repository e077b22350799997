"""Where files stand: ``root/catalogue/category/value_type/v1/2013-08-03/JFK.parquet``.

The part before the suffix is a partition's *stem*; a commit protocol decides what its data file is
called behind it. Nothing outside ``stores.files`` knows this.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Partition, Query

HOLD_SUFFIX = ".hold"  # beside a data file; wins over it
RESTATE_SUFFIX = ".restate"  # beside a data file: make it again, and then remove this
MARKER_SUFFIX = ".commit"  # behind a number; only where the commit protocol is ``marker``


def is_regular_file(path: str) -> bool:
    """Return whether a file stands there, by the scan's own rule: no folder and no symlink."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one store; as text, since a million of them are built."""

    root: Path
    suffix: str

    def version_folder(self, query: Query) -> str:
        """Return the folder of a query's days."""
        return f"{self.root}/{'/'.join(query.asset_path)}/v{query.version}"

    def day_folder(self, query: Query, day: date) -> str:
        """Return the folder of a query's units on one day."""
        return f"{self.version_folder(query)}/{day.isoformat()}"

    def hold_file(self, catalogue: Catalogue, partition: Partition) -> str:
        """Return the path of a partition's hold."""
        return self.stem(catalogue, partition) + HOLD_SUFFIX

    def restate_file(self, catalogue: Catalogue, partition: Partition) -> str:
        """Return the path of a wish to make a partition again."""
        return self.stem(catalogue, partition) + RESTATE_SUFFIX

    def stem(self, catalogue: Catalogue, partition: Partition) -> str:
        """Return what the paths of all of a partition's files begin with, up to a dot."""
        folder = self.day_folder(partition.query, partition.day)
        return f"{folder}/{catalogue.unit_segments[partition.unit]}"
