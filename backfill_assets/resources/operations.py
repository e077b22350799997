"""What a person does to partitions; the command line and the jobs share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.core.errors import SettingsError, UnknownPartitionError
from backfill_assets.core.selection import FORM, select

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.resources.project import Project


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operation did.

    Attributes:
        changed: Partitions whose state changed.
        unchanged: Partitions that were in the wished state already.
    """

    changed: PartitionSet
    unchanged: PartitionSet

    def __str__(self) -> str:
        same = f", {len(self.unchanged)} were so before" if self.unchanged else ""
        return f"{len(self.changed)} partitions{same}"


def hold(project: Project, selection: str, reason: str) -> Outcome:
    """Withdraw the closed, expected partitions of a selection until they are released.

    A crash leaves each partition held or as it was; holding again completes it.

    Raises:
        SettingsError: no reason is given.
        UnknownPartitionError: the selection names something unknown, or nothing that is expected.
    """
    if not reason.strip():
        message = "a hold needs a reason: whoever meets it later has nothing else to go by"
        raise SettingsError(message)
    catalogue = catalogue_named_in(project, selection)
    plan = project.plan(catalogue)
    wanted = select(catalogue, selection, plan.latest_closed_day) & plan.expected
    _refuse_nothing(selection, wanted)
    changed = wanted - plan.held
    project.store.hold(list(changed), reason)
    return Outcome(changed, wanted & plan.held)


def release(project: Project, selection: str) -> Outcome:
    """Make the held partitions of a selection missing again; the next tick makes them.

    Raises:
        UnknownPartitionError: the selection names something unknown.
    """
    catalogue = catalogue_named_in(project, selection)
    plan = project.plan(catalogue)
    wanted = select(catalogue, selection, plan.latest_closed_day) & plan.expected
    _refuse_nothing(selection, wanted)
    changed = wanted & plan.held
    project.store.release(list(changed))
    return Outcome(changed, wanted - plan.held)


def restate(project: Project, selection: str) -> Outcome:
    """Have the committed partitions of a selection made again and replaced, after missing work.

    The wishes stand in the store: whatever is killed, the sensor goes on with them, newest first.

    Raises:
        UnknownPartitionError: the selection names something unknown, or nothing that is expected.
    """
    catalogue = catalogue_named_in(project, selection)
    plan = project.plan(catalogue)
    wanted = select(catalogue, selection, plan.latest_closed_day) & plan.expected
    _refuse_nothing(selection, wanted)
    changed = (wanted & plan.committed) - plan.restating
    project.store.ask_to_restate(list(changed))
    return Outcome(changed, wanted - changed)


def catalogue_named_in(project: Project, selection: str) -> Catalogue:
    """Return the catalogue that a selection begins with.

    Raises:
        UnknownPartitionError: there is none of that name.
    """
    name = selection.split("/", 1)[0]
    for catalogue in project.catalogues:
        if catalogue.name == name:
            return catalogue
    known = ", ".join(catalogue.name for catalogue in project.catalogues)
    message = f"selection {selection!r}: expected {FORM}; there is {known}"
    raise UnknownPartitionError(message)


def _refuse_nothing(selection: str, wanted: PartitionSet) -> None:
    if not wanted:
        message = f"selection {selection!r} names no partition that is expected and closed"
        raise UnknownPartitionError(message)
