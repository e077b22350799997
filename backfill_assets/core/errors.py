"""Every error that this project raises on purpose.

A message says what was found, where, and what to do about it. Errors of libraries are translated
once, at the edge where they occur.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.core.store import Published


class BackfillAssetsError(Exception):
    """Base of every error raised on purpose; catching it catches nothing else."""


class CatalogueError(BackfillAssetsError):
    """A catalogue, a unit, a query or a bound is not valid as written."""


class UnknownPartitionError(BackfillAssetsError):
    """A partition was named that the catalogue does not have."""


class SettingsError(BackfillAssetsError):
    """A setting is missing, malformed, or contradicts another; the message names the variable."""


class SourceNotReadyError(BackfillAssetsError):
    """The source knows that it is not ready; the partitions wait and no attempt is spent."""


class SourceError(BackfillAssetsError):
    """The source cannot be reached or read, or returned rows that the catalogue does not allow."""


class ModelError(BackfillAssetsError):
    """A model is absent or damaged, or was asked for something that it cannot score."""


class PartitionsRefusedError(BackfillAssetsError):
    """A run was asked for open or held partitions; the others are committed."""


class StoreError(BackfillAssetsError):
    """Base of what can go wrong with a store of files."""


class StoreUnreadableError(StoreError):
    """A place in the store cannot be read, or the root lost its identity; never missing work."""


class StoreUnsupportedError(StoreError):
    """The file system lacks what the commit protocol needs, or another format owns the root."""


class StoreFullError(StoreError):
    """The file system has no room; nothing of the group became visible."""


class PublishRefusedError(StoreError):
    """A target was left as it stands; the other partitions of the group are published.

    Attributes:
        published: What of the group was made visible all the same.
    """

    published: Sequence[Published] = ()


class ContentConflictError(PublishRefusedError):
    """A target already holds other content than the one about to be published."""


class ForeignFileError(PublishRefusedError):
    """Something that this project did not write stands at a target's path."""


class StaleAttemptError(StoreError):
    """The attempt was revoked; whatever it had not published stays unpublished."""


class MissingPartitionError(StoreError):
    """A partition was asked for that is not committed: absent, never empty."""


class CorruptPartitionError(StoreError):
    """A committed file is unreadable, or is not what its commit record and its path say."""
