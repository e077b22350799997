"""One wide table of a source, cut into partitions: newest day first, every expected one present."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.core.errors import SourceError
from backfill_assets.stores.tables import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    import numpy.typing as npt

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
    table = _sorted(_typed(frame, queries), queries[0].category)
    rows = _rows_by_day_and_unit(table, catalogue, queries[0])
    for partition in wanted.only(queries):
        start, end = rows.get((partition.day, partition.unit), (0, 0))
        yield partition, _columns_of(partition.query, table, start, end)


def _typed(frame: pa.Table | pd.DataFrame, queries: Sequence[Query]) -> pa.Table:
    """Return the columns that matter, in their declared types."""
    if isinstance(frame, pd.DataFrame):
        frame = pa.Table.from_pandas(frame, preserve_index=False)
    declared = schema_of(queries[0])
    fields = [declared.field(name) for name in ("date", "unit", queries[0].category)]
    fields += [schema_of(q).field("value").with_name(q.value_type) for q in queries]
    missing = [field.name for field in fields if field.name not in frame.column_names]
    if missing:
        message = (
            f"source of {queries[0].catalogue}/{queries[0].category}: no column {missing[0]!r} "
            f"among {', '.join(frame.column_names)}"
        )
        raise SourceError(message)
    return pa.table({field.name: _cast(frame, field, queries[0]) for field in fields})


def _cast(frame: pa.Table, field: pa.Field, query: Query) -> pa.Array:
    try:
        column = frame.column(field.name).cast(field.type).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = (
            f"source of {query.catalogue}/{query.category}: column {field.name!r} is declared "
            f"{field.type}: {error}"
        )
        raise SourceError(message) from error
    if not field.nullable and column.null_count:
        message = (
            f"source of {query.catalogue}/{query.category}: {column.null_count} rows have no "
            f"{field.name!r}; every row belongs to a day and a unit"
        )
        raise SourceError(message)
    return column


def _sorted(table: pa.Table, category: str) -> pa.Table:
    keys = [("date", "ascending"), ("unit", "ascending"), (category, "ascending")]
    return table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()


def _rows_by_day_and_unit(
    table: pa.Table, catalogue: Catalogue, query: Query
) -> dict[tuple[date, str], tuple[int, int]]:
    """Return the half-open range of rows of each day and unit of a sorted table."""
    if not table.num_rows:
        return {}
    days, units = table.column("date"), table.column("unit")
    changes = _changes(days) | _changes(units)
    _check_groups(table, changes, query)
    starts = np.flatnonzero(np.concatenate([[True], changes]))
    ends = [*starts[1:].tolist(), table.num_rows]
    names = zip(days.take(starts).to_pylist(), units.take(starts).to_pylist(), strict=True)
    rows = {name: span for name, *span in zip(names, starts.tolist(), ends, strict=True)}
    unknown = sorted({unit for _, unit in rows} - set(catalogue.unit_bits))
    if unknown:
        message = (
            f"source of {query.catalogue}/{query.category}: unit {unknown[0]!r} is not among "
            f"{', '.join(catalogue.unit_names)}"
        )
        raise SourceError(message)
    return {name: (start, end) for name, (start, end) in rows.items()}


def _changes(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return for each row but the first whether it differs from the row before; null is a value."""
    values = column.combine_chunks().dictionary_encode(null_encoding="encode").indices
    codes = values.to_numpy()
    differs: npt.NDArray[np.bool_] = codes[1:] != codes[:-1]
    return differs


def _check_groups(table: pa.Table, changes: npt.NDArray[np.bool_], query: Query) -> None:
    repeated = np.flatnonzero(~(changes | _changes(table.column(query.category))))
    if repeated.size:
        row = table.slice(int(repeated[0]), 1).to_pylist()[0]
        message = (
            f"source of {query.catalogue}/{query.category}: {query.category} "
            f"{row[query.category]!r} stands twice on {row['date']} for unit {row['unit']!r}; "
            "return one row for each group"
        )
        raise SourceError(message)


def _columns_of(query: Query, table: pa.Table, start: int, end: int) -> pa.Table:
    names = ("date", "unit", query.category, query.value_type)
    part = [table.column(name).slice(start, end - start) for name in names]
    return pa.Table.from_arrays(part, schema=schema_of(query))
