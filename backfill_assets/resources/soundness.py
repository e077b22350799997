"""Where Dagster's grid and the files disagree, asset by asset: for display, never for work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.core.errors import CorruptPartitionError, MissingPartitionError
from backfill_assets.resources.reconciliation import shown_partitions

if TYPE_CHECKING:
    import dagster as dg

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.core.partitions import Query
    from backfill_assets.resources.project import Project


class Soundness:
    """One look at the files and at what Dagster shows, for the checks of a catalogue."""

    def __init__(
        self, project: Project, catalogue: Catalogue, instance: dg.DagsterInstance
    ) -> None:
        self._project = project
        self._instance = instance
        self._catalogue = catalogue
        self._plan = project.plan(catalogue)
        self._alerts = [f for f in project.failures(catalogue) if f.needs_a_person]

    def faults(self, query: Query) -> dict[str, list[str]]:
        """Return the partitions of one query that need looking at, by kind of fault.

        What is not expected is left out: it is reported once so that a backfill can end.
        """
        shown = shown_partitions(self._instance, self._catalogue, query)
        return {
            "shown without a file": _keys(shown & self._plan.missing),
            "held": _keys(self._plan.held.only([query])),
            "with an unsound file": self._unsound(shown & self._plan.committed),
            "failing again and again": [
                f"{f.partition.key}: {f.attempts} attempts, {f.error}"
                for f in self._alerts
                if f.partition.query == query and f.partition in self._plan.missing
            ],
        }

    def _unsound(self, partitions: PartitionSet) -> list[str]:
        unsound = []
        for partition in partitions:
            try:
                self._project.store.verify(partition)
            except (CorruptPartitionError, MissingPartitionError) as error:
                unsound.append(f"{partition.key}: {error}")
        return unsound


def _keys(partitions: PartitionSet) -> list[str]:
    return [partition.key for partition in partitions]
