"""Where rows come from; the implementations live beside their catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

TableT_co = TypeVar("TableT_co", covariant=True)


class Source(Protocol[TableT_co]):
    """A replayable source: for a closed day the same question always gives the same rows."""

    def read(
        self, category: str, value_types: Sequence[str], days: Sequence[date], units: Sequence[str]
    ) -> TableT_co:
        """Return one table for all the days and units, in one query.

        Its columns are ``date``, ``unit``, the category, and one for each value type; one row for
        each group that exists, nulls where a group has no value. Rows may come in any order.

        Raises:
            SourceNotReadyError: the source knows that a day is not complete yet.
        """


@runtime_checkable
class WaitingSource(Protocol):
    """A source that can say cheaply that nothing of it can be read yet."""

    def why_not_ready(self) -> str | None:
        """Return why no day can be read now, or None where days can; no run is launched before."""


@runtime_checkable
class FingerprintedSource(Protocol):
    """A source that can say cheaply whether a day's data has changed since it was read."""

    def fingerprints(self, days: Sequence[date]) -> Mapping[date, str]:
        """Return a text for each day that changes when any row of the day does; one query for all.

        A day without any data may be left out.
        """
