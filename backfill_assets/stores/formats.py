"""File formats of a partition: how rows and commit record become bytes, and come back.

The same rows give the same bytes: nothing here depends on who writes, or when.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.core.errors import CorruptPartitionError, SettingsError
from backfill_assets.core.store import CommitRecord
from backfill_assets.stores.tables import schema_of

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.core.partitions import Partition

RECORD_KEY = b"backfill_assets.commit"  # in the Parquet key-value metadata
# What Arrow raises at bytes that are not what they should be; ArrowInvalid is a ValueError.
UNREADABLE = (pa.ArrowException, ValueError, OverflowError, OSError)


class FileFormat(Protocol):
    """How a partition's file looks inside."""

    name: str
    suffix: str

    def encode(self, table: pa.Table, record: CommitRecord) -> memoryview:
        """Return the bytes of a file."""

    def decode(self, content: bytes, path: Path, partition: Partition) -> pa.Table:
        """Return the rows of a file.

        Args:
            path: Where it stands, for messages.

        Raises:
            CorruptPartitionError: the file is not of this format, or of another schema.
        """

    def record(self, content: bytes, path: Path) -> CommitRecord:
        """Return the commit record of a file without decoding its rows.

        Raises:
            CorruptPartitionError: the file has none.
        """


class ParquetFormat:
    """Parquet, uncompressed and without dictionaries: a day of groups is a kilobyte or two."""

    name = "parquet"
    suffix = ".parquet"

    def encode(self, table: pa.Table, record: CommitRecord) -> memoryview:
        """Return the bytes of a Parquet file with the record in its metadata."""
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink,
            table.schema,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            store_schema=False,  # Arrow's copy of the schema would double the file
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({RECORD_KEY: _record_text(record).encode()})
        return memoryview(sink.getvalue())

    def decode(self, content: bytes, path: Path, partition: Partition) -> pa.Table:
        """Return the rows of a Parquet file."""
        try:
            with pq.ParquetFile(pa.BufferReader(content)) as file:
                table = file.read().replace_schema_metadata(None)
            return _with_schema(path, table, partition)
        except UNREADABLE as error:
            raise _unreadable(path, error) from error

    def record(self, content: bytes, path: Path) -> CommitRecord:
        """Return the commit record in a Parquet file's metadata."""
        try:
            metadata = pq.read_metadata(pa.BufferReader(content)).metadata or {}
        except UNREADABLE as error:
            raise _unreadable(path, error) from error
        return parse_record(path, metadata.get(RECORD_KEY, b""))


class JsonFormat:
    """JSON: an object with the commit record and a list of row objects."""

    name = "json"
    suffix = ".json"

    def encode(self, table: pa.Table, record: CommitRecord) -> memoryview:
        """Return the bytes of a JSON file."""
        rows = table.to_pylist()
        for row in rows:
            row["date"] = row["date"].isoformat()
        document = {"commit": _record_fields(record), "rows": rows}
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return memoryview(text.encode())

    def decode(self, content: bytes, path: Path, partition: Partition) -> pa.Table:
        """Return the rows of a JSON file."""
        rows: Any = _load_json(content, path).get("rows")
        schema = schema_of(partition.query)
        try:
            _check_names(rows, schema)
            dated = pa.Table.from_pylist(rows, schema=schema.set(0, pa.field("date", pa.string())))
            return dated.set_column(0, schema.field(0), dated.column(0).cast(pa.date32()))
        except (*UNREADABLE, TypeError, AttributeError) as error:
            raise _unreadable(path, error) from error

    def record(self, content: bytes, path: Path) -> CommitRecord:
        """Return the commit record of a JSON file."""
        return parse_record(path, json.dumps(_load_json(content, path).get("commit")).encode())


def file_format(name: str) -> FileFormat:
    """Return the format called ``parquet`` or ``json``.

    Raises:
        SettingsError: there is no such format.
    """
    formats: dict[str, FileFormat] = {f.name: f for f in (ParquetFormat(), JsonFormat())}
    if name not in formats:
        message = f"file format {name!r}: choose one of {', '.join(formats)}"
        raise SettingsError(message)
    return formats[name]


def _record_fields(record: CommitRecord) -> dict[str, object]:
    """Return what a record says; a source without fingerprints leaves no trace."""
    values = {name: getattr(record, name) for name in record.__slots__}
    return {name: value for name, value in values.items() if value is not None}


def _record_text(record: CommitRecord) -> str:
    return json.dumps(_record_fields(record), separators=(",", ":"))


def parse_record(path: Path | str, text: bytes) -> CommitRecord:
    """Return the commit record that a file carries.

    Raises:
        CorruptPartitionError: it is no commit record.
    """
    try:
        return CommitRecord(**json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        message = f"{path} has no commit record: another program wrote it; move it away"
        raise CorruptPartitionError(message) from error


def _check_names(rows: list[dict[str, object]], schema: pa.Schema) -> None:
    """Refuse rows with other names than the schema's: Arrow would drop them, or fill in nulls."""
    names = set(schema.names)
    for number, row in enumerate(rows):
        if row.keys() != names:
            message = f"row {number} has {', '.join(row)}; expected {', '.join(schema.names)}"
            raise ValueError(message)


def _load_json(content: bytes, path: Path) -> dict[str, object]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(document, dict):
        raise _unreadable(path, TypeError("not a JSON object"))
    return document


def _with_schema(path: Path, table: pa.Table, partition: Partition) -> pa.Table:
    expected = schema_of(partition.query)
    found = [(field.name, field.type) for field in table.schema]
    if found != [(field.name, field.type) for field in expected]:
        message = f"{path} has the columns {table.schema}; expected {expected}"
        raise CorruptPartitionError(message)
    return table.cast(expected)


def _unreadable(path: Path, error: Exception) -> CorruptPartitionError:
    return CorruptPartitionError(
        f"{path} cannot be read as a committed file ({error}); "
        "delete it and the next tick makes it again"
    )
