"""One wide table of a source, cut into partitions: newest day first, every expected one present."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.core.errors import SourceError
from backfill_assets.stores.tables import as_table, cast, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    import numpy.typing as npt
    import pandas as pd

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.core.partitions import Partition, Query


def split(
    frame: pa.Table | pd.DataFrame, queries: Sequence[Query], wanted: PartitionSet
) -> Iterator[tuple[Partition, pa.Table]]:
    """Yield each wanted partition and its rows, in plan order, sorted by category.

    Args:
        frame: What a source returned for the days and units of ``wanted``: ``date``, ``unit``, the
            category and a column for each value type. Rows of partitions not wanted are left out.
        queries: Queries of one category, in catalogue order.
        wanted: The partitions to yield; one without rows yields an empty table.

    Raises:
        SourceError: a column is missing or does not fit its type, a row has no date or unit or an
            unknown one, or a group stands twice.
    """
    catalogue = wanted.catalogue
    where = f"source of {queries[0].catalogue}/{queries[0].category}"
    table = _sorted(_typed(where, as_table(where, frame), queries), queries[0].category)
    rows = _rows_by_day_and_unit(where, table, catalogue)
    for partition in wanted.only(queries):
        start, end = rows.get((partition.day, partition.unit), (0, 0))
        yield partition, _columns_of(partition.query, table, start, end)


def _typed(where: str, frame: pa.Table, queries: Sequence[Query]) -> pa.Table:
    """Return the columns that matter, in their declared types."""
    declared = schema_of(queries[0])
    fields = [declared.field(name) for name in ("date", "unit", queries[0].category)]
    fields += [schema_of(q).field("value").with_name(q.value_type) for q in queries]
    missing = [field.name for field in fields if field.name not in frame.column_names]
    if missing:
        found = ", ".join(frame.column_names)
        message = f"{where}: no column {missing[0]!r} among {found}"
        raise SourceError(message)
    return pa.table({field.name: _column(where, frame, field) for field in fields})


def _column(where: str, frame: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    column = cast(where, frame.column(field.name), field)
    if not field.nullable and column.null_count:
        message = (
            f"{where}: {column.null_count} rows have no {field.name!r}; every row belongs to a day "
            "and a unit"
        )
        raise SourceError(message)
    return column


def _sorted(table: pa.Table, category: str) -> pa.Table:
    keys = [("date", "ascending"), ("unit", "ascending"), (category, "ascending")]
    return table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()


def _rows_by_day_and_unit(
    where: str, table: pa.Table, catalogue: Catalogue
) -> dict[tuple[date, str], tuple[int, int]]:
    """Return the half-open range of rows of each day and unit of a sorted table."""
    if not table.num_rows:
        return {}
    days, units = table.column("date"), table.column("unit")
    changes = _changes(days) | _changes(units)
    _check_groups(where, table, changes)
    starts = np.flatnonzero(np.concatenate([[True], changes]))
    spans = zip(starts.tolist(), [*starts[1:].tolist(), table.num_rows], strict=True)
    names = zip(days.take(starts).to_pylist(), units.take(starts).to_pylist(), strict=True)
    rows = dict(zip(names, spans, strict=True))
    unknown = sorted({unit for _, unit in rows} - set(catalogue.unit_bits))
    if unknown:
        message = f"{where}: unit {unknown[0]!r} is not among {', '.join(catalogue.unit_names)}"
        raise SourceError(message)
    return rows


def _changes(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return for each row but the first whether it differs from the row before; null is a value."""
    values = column.combine_chunks().dictionary_encode(null_encoding="encode").indices
    codes = values.to_numpy()
    differs: npt.NDArray[np.bool_] = codes[1:] != codes[:-1]
    return differs


def _check_groups(where: str, table: pa.Table, changes: npt.NDArray[np.bool_]) -> None:
    category = table.column_names[2]  # after date and unit
    repeated = np.flatnonzero(~(changes | _changes(table.column(category))))
    if repeated.size:
        row = table.slice(int(repeated[0]), 1).to_pylist()[0]
        message = (
            f"{where}: {category} {row[category]!r} stands twice on {row['date']} for unit "
            f"{row['unit']!r}; return one row for each group"
        )
        raise SourceError(message)


def _columns_of(query: Query, table: pa.Table, start: int, end: int) -> pa.Table:
    names = ("date", "unit", query.category, query.value_type)
    part = [table.column(name).slice(start, end - start) for name in names]
    return pa.Table.from_arrays(part, schema=schema_of(query))
