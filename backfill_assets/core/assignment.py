"""What one run does with the partitions that it was asked for.

Closing and holds are enforced here, where data is computed, and not only where work is planned: a
person may ask for anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import State

if TYPE_CHECKING:
    from backfill_assets.core.plan import Plan

_NAMED = 5  # refused partitions that a message names before it counts the rest


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that a run was asked for, by what becomes of them.

    Attributes:
        compute: To be computed and committed.
        skip: Committed already, and left as they are.
        refuse: Open or held.
        not_expected: Will never exist.
    """

    plan: Plan
    compute: PartitionSet
    skip: PartitionSet
    refuse: PartitionSet
    not_expected: PartitionSet

    def refusal(self) -> str | None:
        """Return why some partitions were refused, or None where none was."""
        if not self.refuse:
            return None
        reasons = []
        for partition in self.refuse:
            state, reason = self.plan.explain(partition)
            reasons.append(f"{partition} is {state}: {reason}")
            if len(reasons) == _NAMED:
                break
        left = len(self.refuse) - len(reasons)
        more = [f"and {left} more"] if left else []
        return (
            f"{len(self.refuse)} partitions were refused, and the others are committed: "
            + "; ".join(reasons + more)
        )


def assign(
    plan: Plan, requested: PartitionSet, *, replace: bool, stale_only: bool = False
) -> Assignment:
    """Sort the requested partitions by what becomes of them.

    Args:
        replace: Whether committed partitions are computed again and replaced.
        stale_only: Of the committed ones, replace only those that are stale.
    """
    held = plan.held & requested
    committed = plan.committed & requested
    missing = plan.missing & requested
    again = committed & plan.restating if stale_only else committed
    if not replace:
        again = PartitionSet.empty(plan.catalogue)
    rest = requested - held - committed - missing
    still_open = PartitionSet.of(plan.catalogue, (p for p in rest if plan.state(p) is State.OPEN))
    return Assignment(
        plan=plan,
        compute=missing | again,
        skip=committed - again,
        refuse=still_open | held,
        not_expected=rest - still_open,
    )
