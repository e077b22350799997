"""Folders for stores."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.stores.examples import no_links_and_no_renames

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


@pytest.fixture
def no_links() -> Iterator[None]:
    """Have the operating system refuse links and renames."""
    with no_links_and_no_renames():
        yield


@pytest.fixture(params=["link", "marker"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Return each commit protocol, the second where nothing can be linked or renamed."""
    if request.param == "marker":
        request.getfixturevalue("no_links")
    return str(request.param)
