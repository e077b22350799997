"""The rows of a partition as they stand in ``published_values``, there and back without loss.

A group is kept as text, a value as a double; what a double cannot hold is kept exactly beside it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from backfill_assets.core.partitions import ColumnType
from backfill_assets.stores.tables import VALUE

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from backfill_assets.core.partitions import Query

Scalar = None | bool | int | float | str
Cells = tuple[str | None, float | None, str | None]  # group_value, value, exact

LARGEST_EXACT = 2**53  # a double holds every whole number up to here


def cells_of(query: Query, table: pa.Table) -> list[Cells]:
    """Return the rows of a partition as they are loaded, in the order of the file."""
    groups = table.column(query.category).to_pylist()
    values = table.column(VALUE).to_pylist()
    return [(_text(g), *_value(v)) for g, v in zip(groups, values, strict=True)]


def digest_of_cells(
    category_type: ColumnType, column_type: ColumnType, cells: Iterable[Cells]
) -> str:
    """Return the digest that a file with these rows has; see ``tables.digest_of``."""
    rows = list(cells)
    groups = [_group(category_type, group) for group, _, _ in rows]
    values = [_scalar(column_type, value, exact) for _, value, exact in rows]
    return hashlib.sha256(json.dumps([groups, values], separators=(",", ":")).encode()).hexdigest()


def _text(value: Scalar) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _value(value: Scalar) -> tuple[float | None, str | None]:
    if value is None:
        return None, None
    if isinstance(value, str):
        return None, value
    if isinstance(value, int) and abs(value) > LARGEST_EXACT:
        return float(value), str(value)
    return float(value), None


def _group(category_type: ColumnType, text: str | None) -> Scalar:
    if text is None or category_type is ColumnType.STRING:
        return text
    parsed: Scalar = json.loads(text)
    return parsed


def _scalar(column_type: ColumnType, value: float | None, exact: str | None) -> Scalar:
    if column_type is ColumnType.STRING:
        return exact
    if exact is not None:
        return int(exact)
    if value is None or column_type is ColumnType.FLOAT64:
        return value
    return bool(value) if column_type is ColumnType.BOOLEAN else int(value)
