"""Release manifests: what was released of a day, beside the files it was released from.

``2013-08-03.2.json`` is the manifest of round 2. It counts when it is whole and nothing called
``2013-08-03.2.withdrawn`` stands beside it: so a process that was stopped while it published, and
goes on after the release was taken back, publishes nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from backfill_assets.core.releases import Manifest, ReleaseKey

if TYPE_CHECKING:
    from backfill_assets.core.store import Documents

_SUFFIX = ".json"
_WITHDRAWN = ".withdrawn"


class Manifests:
    """The manifests in a store's documents, a folder for each catalogue."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def publish(self, manifest: Manifest) -> str:
        """Publish a manifest, durably, and remove those of earlier rounds; return where it stands.

        A crash leaves it published or not; again is the same.
        """
        key = manifest.key
        name = _stem(key) + _SUFFIX
        self._documents.write(key.catalogue, {name: manifest.text()})
        earlier = [_stem(ReleaseKey(key.catalogue, key.day, n)) for n in range(1, key.round)]
        names = set(self._documents.names(key.catalogue))
        if superseded := sorted(names & {stem + _SUFFIX for stem in earlier}):
            self._documents.remove(key.catalogue, superseded)
        return self._documents.location(key.catalogue, name)

    def withdraw(self, key: ReleaseKey, why: str) -> None:
        """Withdraw a release's manifest, for good: the withdrawal stands before the file goes."""
        text = json.dumps({**key.arguments, "withdrawn": why})
        self._documents.write(key.catalogue, {_stem(key) + _WITHDRAWN: text})
        self._documents.remove(key.catalogue, [_stem(key) + _SUFFIX])

    def read(self, key: ReleaseKey) -> Manifest | None:
        """Return a release's manifest, or None where it has none that counts."""
        text = self._documents.read(key.catalogue, _stem(key) + _SUFFIX)
        manifest = None if text is None else Manifest.parse(text)
        # After the file: a withdrawal that comes in between is seen.
        if manifest is None or manifest.key != key or self.is_withdrawn(key):
            return None
        return manifest

    def is_withdrawn(self, key: ReleaseKey) -> bool:
        """Return whether a release's manifest was withdrawn."""
        return self._documents.read(key.catalogue, _stem(key) + _WITHDRAWN) is not None

    def location(self, key: ReleaseKey) -> str:
        """Return where a release's manifest stands or would stand."""
        return self._documents.location(key.catalogue, _stem(key) + _SUFFIX)


def _stem(key: ReleaseKey) -> str:
    return f"{key.day.isoformat()}.{key.round}"
