"""Where the log database and the files disagree; the files are right.

A finder returns what it found wrong by kind, each as the keys of partitions with what is known of
them. Whoever keeps rows about partitions adds one to ``FINDERS``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from backfill_assets.resources.log_drift import newest_drift, unlogged
from backfill_assets.resources.release_desk import released_otherwise

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.resources.project import Project

    Finder = Callable[[Project, Catalogue], dict[str, list[str]]]


def disagreements(project: Project, catalogue: Catalogue) -> dict[str, list[str]]:
    """Return what every finder found, by kind."""
    found: dict[str, list[str]] = defaultdict(list)
    for find in FINDERS:
        for kind, names in find(project, catalogue).items():
            found[kind] += names
    return dict(found)


def _failed_though_committed(project: Project, catalogue: Catalogue) -> dict[str, list[str]]:
    """Return failures of partitions whose file stands; the next tick forgets them."""
    committed = project.plan(catalogue).committed
    return {
        "failed in the log, though the file stands": [
            f"{failure.partition}: {failure.error}"
            for failure in project.failures(catalogue)
            if failure.partition in committed
        ]
    }


def figures(project: Project, catalogue: Catalogue) -> dict[str, int]:
    """Return what is worth knowing and no disagreement: nothing fails by it."""
    return unlogged(project, catalogue)


FINDERS: tuple[Finder, ...] = (_failed_though_committed, newest_drift, released_otherwise)
