"""Removing what is not asked for any more; the command line shows it first, and asks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.core.leftovers import LeftoverKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from backfill_assets.core.leftovers import Leftover
    from backfill_assets.core.plan import Plan
    from backfill_assets.resources.project import Project

SUPERSEDED = frozenset({LeftoverKind.SUPERSEDED})
UNEXPECTED = frozenset(LeftoverKind) - SUPERSEDED
_SLICE = 2_000  # one flush serves them all, and progress is seen


@dataclass(frozen=True, slots=True)
class Pruning:
    """What pruning would remove of one catalogue.

    Attributes:
        leftovers: Each folder after all that is in it.
        kept: Paths among them that stay all the same: holds, symlinked or mounted folders.
    """

    plan: Plan
    leftovers: tuple[Leftover, ...]
    kept: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Return everything that is known, in values that JSON can carry."""
        by_kind: dict[LeftoverKind, list[Leftover]] = defaultdict(list)
        for leftover in self.leftovers:
            by_kind[leftover.kind].append(leftover)
        return {
            "catalogue": self.plan.catalogue.name,
            "total": _counts(self.leftovers),
            "kinds": {
                kind.value: _counts(found) | {"paths": [leftover.path for leftover in found]}
                for kind, found in sorted(by_kind.items())
            },
            "kept": list(self.kept),
            "warnings": self._warnings(),
        }

    def _warnings(self) -> list[str]:
        """Return which superseded versions are all that there is of what is still missing."""
        superseded = {
            tuple(leftover.path.split("/")[:3])
            for leftover in self.leftovers
            if leftover.kind is LeftoverKind.SUPERSEDED
        }
        return [
            f"{'/'.join(query.asset_path)}: {missing} partitions of version {query.version} are "
            "missing still; until they are made, an older version is all that there is of them"
            for query in self.plan.catalogue.queries
            if query.asset_path in superseded and (missing := self.plan.missing.count_of(query))
        ]


def kinds(*, superseded: bool, unexpected: bool) -> frozenset[LeftoverKind]:
    """Return the kinds that are chosen; all of them where none is."""
    chosen = (SUPERSEDED if superseded else frozenset()) | (UNEXPECTED if unexpected else set())
    return chosen or frozenset(LeftoverKind)


def prunings(project: Project, kinds: Collection[LeftoverKind]) -> list[Pruning]:
    """Return what pruning would remove of each catalogue; nothing is changed.

    Raises:
        StoreUnreadableError: a place cannot be read.
    """
    found = []
    for catalogue in project.catalogues:
        plan = project.plan(catalogue)
        everything = project.store.leftovers(catalogue, plan.latest_closed_day)
        chosen = tuple(leftover for leftover in everything.found if leftover.kind in kinds)
        found.append(Pruning(plan, chosen, everything.kept))
    return found


def prune(
    project: Project, pruning: Pruning, on_removed: Callable[[int], object] = lambda _: None
) -> int:
    """Remove what was found, durably, and return how many files and folders are gone.

    It may be killed at any time: what is left is found again.

    Args:
        on_removed: Told how many are gone, now and then.
    """
    count = 0
    for first in range(0, len(pruning.leftovers), _SLICE):
        gone = project.store.remove(pruning.leftovers[first : first + _SLICE])
        on_removed(gone)
        count += gone
    return count


def _counts(leftovers: Iterable[Leftover]) -> dict[str, int]:
    found = list(leftovers)
    folders = sum(leftover.is_folder for leftover in found)
    return {
        "files": len(found) - folders,
        "folders": folders,
        "bytes": sum(leftover.size for leftover in found),
    }
