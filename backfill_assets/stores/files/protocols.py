"""What publishing means in a store: by links, or by markers; nothing else differs between stores.

A *stem* is where a partition's files stand, up to the dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from backfill_assets.core.errors import SettingsError
from backfill_assets.stores.files.link_protocol import LinkProtocol
from backfill_assets.stores.files.marker_protocol import MarkerProtocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.stores.files.attempts import AttemptFolder
    from backfill_assets.stores.files.durability import Flusher
    from backfill_assets.stores.files.publishing import Publisher
    from backfill_assets.stores.files.scanning import DayScan
    from backfill_assets.stores.formats import FileFormat


class CommitProtocol(Protocol):
    """How files become visible, are found, and go."""

    @property
    def name(self) -> str:
        """What the identity of a store says."""

    @property
    def names_say_all(self) -> bool:
        """Whether a day's names alone say what is committed, whatever is in the files."""

    def prove(self, root: Path, attempts: AttemptFolder) -> None:
        """Check on the store's own file system that the protocol holds there.

        Raises:
            StoreUnsupportedError: it does not.
            StoreUnreadableError: the root cannot be written.
        """

    def end_attempt(self, directory: Path) -> Path:
        """End an attempt so that it commits nothing more; return what is left to be removed."""

    def place_identity(self, folder: Path, root: Path, text: bytes, *, replace: bool) -> None:
        """Put a root's identity in place; see ``identity.Placing``."""

    def publisher(self, attempt: Path, flusher: Flusher) -> Publisher:
        """Return how an attempt's files become visible."""

    def day_scan(self, catalogue: Catalogue) -> DayScan:
        """Return how a day of a catalogue is read."""

    def segment_of(self, name: str) -> str | None:
        """Return the segment of the unit whose data file, or what commits it, has a name."""

    def location(self, stem: str) -> str:
        """Return where a partition's data file stands or would stand, for people to read."""

    def content(self, stem: str) -> tuple[Path, bytes] | None:
        """Return a committed file's path and content of one moment, or None where there is none.

        Raises:
            CorruptPartitionError: what is committed is not what stands there.
        """

    def remove(self, stems: Iterable[str]) -> None:
        """Withdraw data files; what is no file of ours is left alone.

        A crash leaves each partition committed or not; what it left goes with the next call.
        """

    def write_holds(self, attempt: Path, texts: Mapping[Path, str], flusher: Flusher) -> None:
        """Write small files whose names alone count; a crash leaves each name there or not."""


def commit_protocol(name: str, file_format: FileFormat) -> CommitProtocol:
    """Return the protocol called ``link`` or ``marker``.

    Raises:
        SettingsError: there is no such protocol.
    """
    protocols: dict[str, CommitProtocol] = {
        protocol.name: protocol
        for protocol in (LinkProtocol(file_format), MarkerProtocol(file_format))
    }
    if name not in protocols:
        message = f"commit protocol {name!r}: choose one of {', '.join(protocols)}"
        raise SettingsError(message)
    return protocols[name]
