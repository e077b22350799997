"""Small documents beside the partitions: ``root/.documents/<folder>/<name>``.

A document is written by the commit protocol of the store and durable when the call returns. Where
nothing can be renamed, a crash can leave one cut short: its reader checks that it is whole.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from typing import TYPE_CHECKING

from backfill_assets.core.errors import StoreUnreadableError
from backfill_assets.stores.files.durability import Flusher, all_translated, translated
from backfill_assets.stores.files.layout import is_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from backfill_assets.stores.files.attempts import AttemptFolder
    from backfill_assets.stores.files.protocols import CommitProtocol

FOLDER = ".documents"  # no catalogue can be called so
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class LocalDocuments:
    """The documents of a store on a local directory; see ``core.store.Documents``.

    Args:
        check: Raises where the root is not the store that is meant, or cannot be written.
    """

    def __init__(
        self,
        root: Path,
        attempts: AttemptFolder,
        protocol: CommitProtocol,
        check: Callable[[], None],
    ) -> None:
        self._root = root
        self._attempts = attempts
        self._protocol = protocol
        self._check = check

    def write(self, folder: str, texts: Mapping[str, str]) -> None:
        """Put documents in place, each in one step where the file system has one."""
        self._check()
        targets = {self._path(folder, name): text for name, text in texts.items()}
        with (
            all_translated("writing a document"),
            self._attempts.open("documents") as attempt,
            closing(Flusher(str(self._root))) as flusher,
        ):
            self._protocol.write_holds(attempt, targets, flusher)
            flusher.flush(self._folders(folder))

    def read(self, folder: str, name: str) -> str | None:
        """Return a document, or None where there is none."""
        path = self._path(folder, name)
        with translated("reading"):
            if not is_regular_file(str(path)):
                return None
            try:
                return path.read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                return None  # it went in this moment

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's documents, sorted."""
        place = self._root / FOLDER / folder
        with translated("reading"):
            try:
                return sorted(name for name in os.listdir(place) if _NAME.fullmatch(name))  # noqa: PTH208 - names only
            except (FileNotFoundError, NotADirectoryError):
                return []

    def remove(self, folder: str, names: Iterable[str]) -> None:
        """Remove documents, durably; those that are gone are gone."""
        self._check()
        with all_translated("removing"), closing(Flusher(str(self._root))) as flusher:
            for name in names:
                self._path(folder, name).unlink(missing_ok=True)
            flusher.flush(self._folders(folder))

    def location(self, folder: str, name: str) -> str:
        """Return where a document stands or would stand, for people to read."""
        return str(self._path(folder, name))

    def _path(self, folder: str, name: str) -> Path:
        for part in (folder, name):
            if not _NAME.fullmatch(part):
                raise StoreUnreadableError(f"{part!r} is no name of a document or its folder")
        return self._root / FOLDER / folder / name

    def _folders(self, folder: str) -> list[str]:
        paths = (self._root, self._root / FOLDER, self._root / FOLDER / folder)
        return [str(path) for path in paths if path.is_dir()]
