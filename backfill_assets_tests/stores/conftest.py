"""Folders for stores."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def memory() -> Iterator[Path]:
    """Return an empty folder in memory, where there is such a thing; others may enter it.

    A killed process leaves the same files there as on a disk, and a flush costs nothing.
    """
    shared = Path("/dev/shm")  # noqa: S108 - the folder below has a name of its own
    folder = Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else None))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def root(memory: Path) -> Path:
    """Return where a store may be."""
    return memory / "store"
