"""A partition's rows as an Arrow table of declared types, and their digest.

The schema of a query is declared in its catalogue, so an empty or all-null day has the same one as
any other day.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from backfill_assets.core.errors import SourceError
from backfill_assets.core.partitions import ColumnType
from backfill_assets.core.store import CommitRecord

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeIs

    from backfill_assets.core.partitions import Partition, Query

VALUE = "value"
_ARROW_TYPES = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT64: pa.int64(),
    ColumnType.FLOAT64: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
}


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type of a declared column."""
    return _ARROW_TYPES[column_type]


@lru_cache(maxsize=4096)
def schema_of(query: Query) -> pa.Schema:
    """Return the schema of every file of a query: ``date``, ``unit``, the category, ``value``."""
    return pa.schema(
        [
            pa.field("date", pa.date32(), nullable=False),
            pa.field("unit", pa.string(), nullable=False),
            pa.field(query.category, arrow_type(query.category_type)),
            pa.field(VALUE, arrow_type(query.column_type)),
        ]
    )


def conform(partition: Partition, frame: pa.Table | pd.DataFrame) -> pa.Table:
    """Return the rows of one partition in its declared schema, in the order given.

    A frame needs the category's column and ``value``; ``date`` and ``unit`` are filled in, and
    where they are given they must be the partition's. NaN in a data frame is null.

    Raises:
        SourceError: a column is missing or unknown, a value does not fit its declared type, or a
            row belongs to another partition.
    """
    schema = schema_of(partition.query)
    where = str(partition)  # once: it is for messages only, and whole histories come through here
    if isinstance(frame, pa.Table) and frame.schema.equals(schema, check_metadata=True):
        # As the product's own sources come, and four times as fast as column by column.
        _check_rows(where, frame.column("date"), "date", partition.day)
        _check_rows(where, frame.column("unit"), "unit", partition.unit)
        return frame
    table = as_table(where, frame)
    _check_columns(where, partition, table, schema)
    columns = [_column(where, partition, table, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def record_of(partition: Partition, table: pa.Table, *, source: str | None = None) -> CommitRecord:
    """Return what the file of a conforming table will say about itself."""
    return CommitRecord(
        partition=str(partition),
        version=partition.query.version,
        rows=table.num_rows,
        digest=digest_of(partition, table),
        source=source,
    )


def digest_of(partition: Partition, table: pa.Table) -> str:
    """Return the SHA-256 of the rows: the category and value columns as one JSON text.

    The text is the same in every file format and every version of Arrow; date and unit are in the
    partition's name already.

    Raises:
        SourceError: a value is infinite, which neither JSON nor a chart can carry.
    """
    columns = [table.column(partition.query.category), table.column(VALUE)]
    values = [column.to_pylist() for column in columns]
    try:
        text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    except ValueError:
        message = f"{partition}: a value is infinite or NaN; give null where there is no number"
        raise SourceError(message) from None
    return hashlib.sha256(text.encode()).hexdigest()


def is_data_frame(value: object) -> TypeIs[pd.DataFrame]:
    """Return whether a value is a pandas frame.

    Without importing pandas: it takes a second, and each run that does without it starts sooner.
    """
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def as_table(where: str, frame: pa.Table | pd.DataFrame) -> pa.Table:
    """Return a frame as an Arrow table whose columns have distinct names.

    Args:
        where: Whose frame it is, for messages.

    Raises:
        SourceError: it is no frame, or Arrow cannot hold it.
    """
    if not isinstance(frame, pa.Table) and not is_data_frame(frame):
        message = f"{where}: got a {type(frame).__name__}; return a DataFrame or an Arrow table"
        raise SourceError(message)
    names = frame.column_names if isinstance(frame, pa.Table) else list(frame.columns)
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        message = f"{where}: column {repeated[0]!r} stands twice; keep one"
        raise SourceError(message)
    if isinstance(frame, pa.Table):
        return frame
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        message = f"{where}: the frame has a column that Arrow cannot hold: {error}"
        raise SourceError(message) from error


def cast(where: str, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return a column in its declared type; a number is no text, a flag is no number.

    Nulls fit every type, text in ISO form fits a date, and an instant does where it is a midnight.

    Raises:
        SourceError: a value does not fit.
    """
    if column.type == field.type:
        return column
    if column.null_count == len(column):  # pandas gives an empty column a type of its own
        return pa.chunked_array([pa.nulls(len(column), field.type)])
    found, declared = _kind(column.type), _kind(field.type)
    try:
        result = column.cast(field.type)
        fits = found == declared or (found, declared) == ("text", "date")
        if fits and pa.types.is_timestamp(column.type):
            fits = result.cast(column.type).equals(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"{where}: column {field.name!r} is declared {field.type}: {error}"
        raise SourceError(message) from error
    if not fits:
        message = (
            f"{where}: column {field.name!r} is declared {field.type}, and came as {column.type}; "
            "convert it where it is made"
        )
        raise SourceError(message)
    return result


def _kind(data_type: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(data_type):
        return _kind(data_type.value_type)
    if types.is_integer(data_type) or types.is_floating(data_type) or types.is_decimal(data_type):
        return "number"
    if types.is_string(data_type) or types.is_large_string(data_type):
        return "text"
    return "date" if types.is_date(data_type) or types.is_timestamp(data_type) else str(data_type)


def _check_columns(where: str, partition: Partition, table: pa.Table, schema: pa.Schema) -> None:
    names = set(table.column_names)
    if not {partition.query.category, VALUE} <= names <= set(schema.names):
        found = ", ".join(table.column_names)
        message = f"{where}: found columns {found}; expected {', '.join(schema.names)}"
        raise SourceError(message)


def _column(
    where: str, partition: Partition, table: pa.Table, field: pa.Field
) -> pa.ChunkedArray | pa.Array:
    own = {"date": partition.day, "unit": partition.unit}.get(field.name)
    if own is not None and field.name not in table.column_names:
        return pa.repeat(pa.scalar(own, field.type), table.num_rows)
    column = cast(where, table.column(field.name), field)
    if own is not None:
        _check_rows(where, column, field.name, own)
    return column


def _check_rows(where: str, column: pa.ChunkedArray, name: str, own: object) -> None:
    """Refuse rows that are of another day or unit, or of none."""
    if _has_only(column, own):
        return
    strange = set(column.unique().to_pylist()) - {own}
    if strange:
        message = f"{where}: a row has {name} {strange.pop()!r}; it belongs elsewhere"
        raise SourceError(message)


def _has_only(column: pa.ChunkedArray, own: object) -> bool:
    """Return whether a column is surely one value over and over; False may mean anything."""
    if column.num_chunks != 1 or len(column) == 0:
        return False
    # Each row is as the one before it: a tenth of the time of `unique`, which hashes.
    rows = column.chunk(0)
    return bool(rows[0].as_py() == own and rows.slice(1).equals(rows.slice(0, len(rows) - 1)))
