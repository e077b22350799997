"""Checking one file that somebody else made, and making of it what a store would hold.

Nothing here asks a catalogue or a store: a file, its partition and a format are all it takes, so
that it can be done in any process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.core.errors import CorruptPartitionError, SourceError
from backfill_assets.stores.formats import RECORD_KEY, UNREADABLE, file_format, parse_record
from backfill_assets.stores.tables import conform, record_of, schema_of

if TYPE_CHECKING:
    from backfill_assets.core.partitions import Partition, Query
    from backfill_assets.core.store import CommitRecord

_PARQUET = ".parquet"


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file whose rows fit the catalogue.

    Attributes:
        record: What the committed file will say about itself.
        content: The whole file as the store would write it, or None where nobody asked for it.
    """

    record: CommitRecord
    content: bytes | memoryview | None


def check(path: str, partition: Partition, *, to_format: str | None) -> CheckedFile:
    """Read a file, and check its rows and its commit record, where it has one.

    Args:
        to_format: Of the store that takes the file in; None where only the record is wanted.

    Raises:
        CorruptPartitionError: it cannot be read, or its commit record contradicts it.
        SourceError: its rows are not what the catalogue says.
    """
    content = _content(path)
    is_parquet = path.endswith(_PARQUET)
    if is_parquet:
        table, says = _read_parquet(content, path)
    else:
        table, says = _read_json(content, path, partition.query)
    if says is not None:
        _check_belongs(says, partition)
    try:
        rows = conform(partition, table)
        record = record_of(partition, rows, source=says.source if says else None)
    except UNREADABLE as error:
        message = f"a value is damaged: {error}"  # no text, or of no calendar
        raise CorruptPartitionError(message) from error
    if says is not None and says != record:
        message = (
            f"its commit record says {says.rows} rows with digest {says.digest}, and it holds "
            f"{record.rows} with digest {record.digest}"
        )
        raise CorruptPartitionError(message)
    if to_format is None:
        return CheckedFile(record, None)
    # A file that this project wrote is copied as it is: twice as fast as writing it anew.
    stands = is_parquet and says is not None and to_format == "parquet"
    if stands and (rows is table or _is_declared(table, partition)):
        return CheckedFile(record, content)
    return CheckedFile(record, file_format(to_format).encode(rows, record))


def _content(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - text, for speed
            return file.read()
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise CorruptPartitionError(message) from error


def _read_parquet(content: bytes, path: str) -> tuple[pa.Table, CommitRecord | None]:
    """Return the rows of a file that anybody wrote, and its commit record where it has one."""
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            text = (file.metadata.metadata or {}).get(RECORD_KEY)
            table = file.read(use_threads=False).replace_schema_metadata(None)
    except UNREADABLE as error:
        message = f"cannot be read as Parquet: {error}"
        raise CorruptPartitionError(message) from error
    return table, None if text is None else parse_record(path, text)


def _read_json(content: bytes, path: str, query: Query) -> tuple[pa.Table, CommitRecord | None]:
    """Return the rows of a list of row objects, or of our own object around it."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        message = f"cannot be read as JSON: {error}"
        raise CorruptPartitionError(message) from error
    if not isinstance(document, dict):
        return _table(document, query), None
    text = json.dumps(document["commit"]).encode() if "commit" in document else None
    says = None if text is None else parse_record(path, text)
    return _table(document.get("rows"), query), says


def _table(rows: Any, query: Query) -> pa.Table:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        message = "expected a list of row objects, or an object with such a list as its 'rows'"
        raise CorruptPartitionError(message)
    if not rows:
        return schema_of(query).empty_table()
    names = list(rows[0])
    # Arrow asks the first row only, and would drop or fill in what the others have.
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            message = f"row {number} has {', '.join(row)}; row 0 has {', '.join(names)}"
            raise SourceError(message)
    try:
        return pa.table({name: pa.array([row[name] for row in rows]) for name in names})
    except (*UNREADABLE, TypeError) as error:
        message = f"has a column whose values are of more than one type: {error}"
        raise SourceError(message) from error


def _is_declared(table: pa.Table, partition: Partition) -> bool:
    """Return whether a table has its declared columns in order, and needed no conversion."""
    declared = schema_of(partition.query)
    return bool(table.schema.names == declared.names and table.schema.types == declared.types)


def _check_belongs(says: CommitRecord, partition: Partition) -> None:
    if (says.partition, says.version) != (str(partition), partition.query.version):
        message = (
            f"its commit record says {says.partition}, version {says.version}, and its path "
            f"{partition}, version {partition.query.version}"
        )
        raise CorruptPartitionError(message)
