"""Many partitions named in one text, for commands and forms.

``catalogue/category/value_type/days/units``: each part is a name, a list ``a,b`` or ``*``; days may
also be ranges ``2013-07-01..2013-07-04``, both ends inclusive, an open end meaning the catalogue's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.partitions import parse_day

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query

FORM = (
    "catalogue/category/value_type/days/units, such as flights/carrier/*/2013-07-01..2013-07-04/*"
)
_ALL = "*"
_RANGE = ".."


def select(catalogue: Catalogue, text: str, latest_day: date) -> PartitionSet:
    """Return the partitions that a text names, expected or not, up to ``latest_day``.

    Raises:
        UnknownPartitionError: the text is not of the form, or names something unknown.
    """
    parts = text.split("/", 4)
    if len(parts) != 5:
        message = f"selection {text!r}: expected {FORM}"
        raise UnknownPartitionError(message)
    if parts[0] not in {catalogue.name, _ALL}:
        message = f"selection {text!r}: there is no catalogue {parts[0]!r}, but {catalogue.name}"
        raise UnknownPartitionError(message)
    queries = _queries(catalogue, parts[1], parts[2])
    days = _days(catalogue, parts[3], latest_day)
    return PartitionSet.rectangle(catalogue, queries, days, _units(catalogue, parts[4]))


def _queries(catalogue: Catalogue, categories: str, value_types: str) -> list[Query]:
    wanted = {
        *_chosen("category", categories, [c.name for c in catalogue.categories]),
    }
    measured = {*_chosen("value type", value_types, [v.name for v in catalogue.value_types])}
    return [q for q in catalogue.queries if q.category in wanted and q.value_type in measured]


def _units(catalogue: Catalogue, text: str) -> int:
    return sum(catalogue.unit_bits[u] for u in _chosen("unit", text, catalogue.unit_names))


def _chosen(kind: str, text: str, known: Sequence[str]) -> list[str]:
    if text == _ALL:
        return list(known)
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in known:
            message = f"{kind} {name!r}: there are {', '.join(map(repr, known))}"
            raise UnknownPartitionError(message)
    return names


def _days(catalogue: Catalogue, text: str, latest_day: date) -> list[date]:
    days: set[date] = set()
    for item in text.split(","):
        first, separator, last = (item, "", item) if item != _ALL else ("", _RANGE, "")
        if _RANGE in item:
            first, separator, last = item.partition(_RANGE)
        start = _day(item, first) if first or not separator else catalogue.first_day
        end = _day(item, last) if last or not separator else latest_day
        if end < start:
            message = f"days {item!r}: the range ends before it begins"
            raise UnknownPartitionError(message)
        days.update(catalogue.days(start, min(end, latest_day)))
    return sorted(days, reverse=True)


def _day(item: str, text: str) -> date:
    day = parse_day(text)
    if day is None:
        message = f"days {item!r}: expected YYYY-MM-DD, YYYY-MM-DD..YYYY-MM-DD or *"
        raise UnknownPartitionError(message)
    return day
