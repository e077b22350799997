"""The same rows give the same bytes, every day has one schema, and damage is noticed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies

from backfill_assets.core.catalogue import Category, ValueType
from backfill_assets.core.errors import CorruptPartitionError, ForeignFileError
from backfill_assets.core.partitions import ColumnType
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.formats import RECORD_KEY, file_format
from backfill_assets.stores.tables import conform, record_of
from backfill_assets_tests.stores.examples import (
    DAY,
    EWR,
    FLIGHTS,
    GROUP,
    JFK,
    JFK_DELAY,
    LGA_NEXT_DAY,
    NEXT_DAY,
    STORES,
    a_catalogue,
    a_store,
    files_below,
    publish,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.core.partitions import Partition

FORMATS = ["parquet", "json"]
KINDS = a_catalogue(
    categories=[Category(f"by_{t}", t) for t in ColumnType],
    value_types=[ValueType(f"as_{t}", t) for t in ColumnType],
)
FILE = "flights/carrier/departures/v1/2013-08-03/JFK"

VALUES: dict[ColumnType, strategies.SearchStrategy[Any]] = {
    ColumnType.STRING: strategies.text(),
    ColumnType.INT64: strategies.integers(-(2**63), 2**63 - 1),
    ColumnType.FLOAT64: strategies.floats(allow_nan=False, allow_infinity=False),
    ColumnType.BOOLEAN: strategies.booleans(),
}


@strategies.composite
def tables(draw: strategies.DrawFn) -> tuple[Partition, pa.Table]:
    query = draw(strategies.sampled_from(KINDS.queries))
    pairs = strategies.tuples(
        strategies.none() | VALUES[query.category_type],
        strategies.none() | VALUES[query.column_type],
    )
    rows = draw(strategies.lists(pairs, max_size=6))
    partition = KINDS.partition(query.name, DAY, "JFK")
    frame = pa.table(
        {
            query.category: pa.array([row[0] for row in rows], arrow_type(query.category_type)),
            "value": pa.array([row[1] for row in rows], arrow_type(query.column_type)),
        }
    )
    return partition, conform(partition, frame)


def arrow_type(column_type: ColumnType) -> pa.DataType:
    return {
        ColumnType.STRING: pa.string(),
        ColumnType.INT64: pa.int64(),
        ColumnType.FLOAT64: pa.float64(),
        ColumnType.BOOLEAN: pa.bool_(),
    }[column_type]


@pytest.mark.parametrize("name", FORMATS)
@STORES
@given(tables())
def test_any_rows_come_back_as_they_were(name: str, example: tuple[Partition, pa.Table]) -> None:
    partition, table = example
    record = record_of(partition, table)
    content = bytes(file_format(name).encode(table, record))

    decoded = file_format(name).decode(content, Path("file"), partition)

    assert decoded.equals(table)
    assert decoded.schema.equals(table.schema)
    assert file_format(name).record(content, Path("file")) == record
    assert record_of(partition, decoded) == record
    assert bytes(file_format(name).encode(decoded, record)) == content


@pytest.mark.parametrize("name", FORMATS)
def test_rows_give_the_same_bytes_as_frame_table_slice_or_chunks(root: Path, name: str) -> None:
    groups, values = ["AA", "B6", None, "Ü"], [1, None, 3, 4]
    table = pa.table({"carrier": pa.array(groups), "value": pa.array(values, pa.int64())})
    longer = pa.concat_tables([table, table, table])
    with_date = table.append_column("date", pa.array([DAY] * 4)).append_column(
        "unit", pa.array(["JFK"] * 4).dictionary_encode()
    )
    frames = [
        table,
        table.to_pandas(),
        table.to_pandas().convert_dtypes(),
        table.to_pandas().set_index(pd.Index([3, 1, 2, 0])),
        longer.slice(4, 4),
        pa.concat_tables([table.slice(0, 1), table.slice(1)]),
        table.select(["value", "carrier"]),
        table.replace_schema_metadata({"written by": "somebody"}),
        pd.DataFrame({"value": [1.0, float("nan"), 3.0, 4.0], "carrier": groups}),
        pd.DataFrame({"value": values, "carrier": pd.Categorical(groups)}),
        with_date,
        with_date.to_pandas(),
        conform(JFK, table).replace_schema_metadata({"written by": "somebody"}),
    ]
    contents = set()
    for number, frame in enumerate(frames):
        store = a_store(root / str(number), name)
        store.prepare()
        with store.attempt(f"run-{number}") as attempt:
            attempt.stage(JFK, frame)
            attempt.publish()
        contents.add(Path(store.location(JFK)).read_bytes())

    assert len(contents) == 1


def test_another_process_with_another_hash_seed_and_clock_writes_the_same_bytes(
    root: Path,
) -> None:
    program = (
        "import sys, pathlib\n"
        "from backfill_assets_tests.stores.examples import *\n"
        "for name in ('parquet', 'json'):\n"
        "    publish(a_store(pathlib.Path(sys.argv[1]) / name, name), GROUP, [1, None])\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(root / "theirs")],
        env=os.environ | {"PYTHONHASHSEED": "42", "TZ": "Pacific/Apia"},
        cwd=Path(__file__).parents[2],
        check=True,
    )
    for name in FORMATS:
        publish(a_store(root / "ours" / name, name), GROUP, [1, None])

    assert files_below(root / "ours") == files_below(root / "theirs")
    assert len(files_below(root / "ours")) == 8  # in each format three partitions, an identity


def test_nothing_in_a_file_says_when_or_by_whom_it_was_written(root: Path) -> None:
    publish(a_store(root), [JFK], name="a-run-of-today")

    metadata = pq.read_metadata(root / f"{FILE}.parquet")

    assert metadata.metadata.keys() == {b"backfill_assets.commit"}
    assert json.loads(metadata.metadata[b"backfill_assets.commit"]) == {
        "partition": "flights/carrier/departures/2013-08-03/JFK",
        "version": 1,
        "rows": 2,
        "digest": hashlib.sha256(b'[["C0","C1"],[1,2]]').hexdigest(),
    }


def test_a_json_file_is_the_record_and_a_list_of_rows(root: Path) -> None:
    publish(a_store(root, "json"), [JFK], [1, None])

    assert json.loads((root / f"{FILE}.json").read_text("utf-8")) == {
        "commit": {
            "partition": "flights/carrier/departures/2013-08-03/JFK",
            "version": 1,
            "rows": 2,
            "digest": hashlib.sha256(b'[["C0","C1"],[1,null]]').hexdigest(),
        },
        "rows": [
            {"date": "2013-08-03", "unit": "JFK", "carrier": "C0", "value": 1},
            {"date": "2013-08-03", "unit": "JFK", "carrier": "C1", "value": None},
        ],
    }


def test_the_digest_is_the_same_in_every_format(root: Path) -> None:
    digests = set()
    for name in FORMATS:
        store = a_store(root / name, name)
        publish(store, [JFK_DELAY], [0.1, None, -0.0, 1e300, 5e-324])
        digests.add(store.verify(JFK_DELAY).digest)

    assert len(digests) == 1


def test_normal_all_null_and_empty_days_have_one_schema_and_read_together(root: Path) -> None:
    store = a_store(root)
    store.prepare()
    days = {date(2013, 8, 1): [1.5, None], DAY: [None, None], NEXT_DAY: []}
    for day, values in days.items():
        frame = pd.DataFrame({"carrier": ["AA", "B6"][: len(values)], "value": values})
        with store.attempt("run") as attempt:
            attempt.stage(FLIGHTS.partition("carrier/delay", day, "JFK"), frame)
            attempt.publish()
    folder = root / "flights/carrier/delay/v1"

    schemas = {str(pq.read_schema(path).remove_metadata()) for path in folder.rglob("*.parquet")}
    together = ds.dataset(folder).to_table()
    frame = pd.read_parquet(folder)

    assert schemas == {
        "date: date32[day] not null\nunit: string not null\ncarrier: string\nvalue: double"
    }
    assert sorted(together.to_pylist(), key=lambda row: (row["date"], row["carrier"])) == [
        {"date": date(2013, 8, 1), "unit": "JFK", "carrier": "AA", "value": 1.5},
        {"date": date(2013, 8, 1), "unit": "JFK", "carrier": "B6", "value": None},
        {"date": DAY, "unit": "JFK", "carrier": "AA", "value": None},
        {"date": DAY, "unit": "JFK", "carrier": "B6", "value": None},
    ]
    assert list(frame.columns) == ["date", "unit", "carrier", "value"]
    assert len(frame) == 4


def truncated(content: bytes) -> bytes:
    return content[:-7]


def halved(content: bytes) -> bytes:
    return content[: len(content) // 2]


def emptied(_: bytes) -> bytes:
    return b""


def zeroed(content: bytes) -> bytes:
    return bytes(len(content))


def of_another_program(_: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    return bytes(sink.getvalue())


def with_a_record_too_deep(_: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": [1]}).replace_schema_metadata({RECORD_KEY: b"[" * 100_000})
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def listed(_: bytes) -> bytes:
    return b"[1, 2]"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "damage",
    [truncated, halved, emptied, zeroed, of_another_program, with_a_record_too_deep, listed],
)
def test_a_damaged_file_is_corrupt_and_not_missing(
    root: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    store = a_store(root, name)
    publish(store, [JFK])
    path = Path(store.location(JFK))
    path.write_bytes(damage(path.read_bytes()))

    for act in (store.verify, store.read, lambda p: store.records([p])):
        with pytest.raises(CorruptPartitionError, match=f"{path}"):
            act(JFK)
    with pytest.raises(ForeignFileError, match="not ours to touch"):
        publish(store, [JFK], replace=True)


@pytest.mark.parametrize("name", FORMATS)
def test_a_bit_that_flips_is_corruption_or_changes_nothing_that_is_read(
    root: Path, name: str
) -> None:
    store = a_store(root, name)
    publish(store, [JFK_DELAY], [1.5, None, 3.25])
    path = Path(store.location(JFK_DELAY))
    content, rows = path.read_bytes(), store.read(JFK_DELAY)
    record = store.verify(JFK_DELAY)
    bits = random.Random(name).sample(range(8 * len(content)), 600)
    noticed = 0
    for bit in bits:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert store.verify(JFK_DELAY) == record
        except CorruptPartitionError:
            noticed += 1
        else:
            assert store.read(JFK_DELAY).equals(rows)

    assert noticed > 200


@pytest.mark.parametrize("name", FORMATS)
def test_every_flipped_bit_of_a_value_is_noticed(root: Path, name: str) -> None:
    store = a_store(root, name)
    store.prepare()
    number, text = 1.2345678901234567, "CARRIER"
    with store.attempt("run") as attempt:
        attempt.stage(JFK_DELAY, pa.table({"carrier": [text], "value": [number]}))
        attempt.publish()
    path = Path(store.location(JFK_DELAY))
    content = path.read_bytes()
    value = pa.array([number]).buffers()[1].to_pybytes() if name == "parquet" else b"1.23456789"
    for needle in (value, text.encode()):
        start = content.rindex(needle) if name == "json" else content.index(needle)
        for bit in range(8 * start, 8 * (start + len(needle))):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            with pytest.raises(CorruptPartitionError):
                store.verify(JFK_DELAY)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("values", [[1, 2], []], ids=["rows", "empty"])
@pytest.mark.parametrize("other", [EWR, LGA_NEXT_DAY, JFK_DELAY], ids=["unit", "day", "query"])
def test_the_file_of_another_partition_is_noticed(
    root: Path, name: str, values: list[int], other: Partition
) -> None:
    store = a_store(root, name)
    publish(store, [JFK, other], values)
    Path(store.location(JFK)).write_bytes(Path(store.location(other)).read_bytes())

    with pytest.raises(CorruptPartitionError, match=r"JFK\."):
        store.verify(JFK)


def test_the_file_of_another_version_is_noticed(root: Path) -> None:
    newer = a_catalogue(versions={"carrier/departures": 2})
    store = LocalPartitionStore(root, [newer])
    partition = newer.partition("carrier/departures", DAY, "JFK")
    publish(store, [partition])
    publish(a_store(root), [JFK])
    Path(store.location(partition)).write_bytes(Path(a_store(root).location(JFK)).read_bytes())

    with pytest.raises(CorruptPartitionError, match="version 1, and it holds 2"):
        store.verify(partition)


def test_rows_that_the_record_does_not_count_are_noticed(root: Path) -> None:
    store = a_store(root, "json")
    publish(store, [JFK])
    path = Path(store.location(JFK))
    document = json.loads(path.read_text())
    document["rows"].append(document["rows"][0])
    path.write_text(json.dumps(document))

    with pytest.raises(CorruptPartitionError, match="rows 2, and it holds 3"):
        store.verify(JFK)


@pytest.mark.parametrize(
    "row",
    [
        {"date": "2013-08-04", "unit": "JFK", "carrier": "C0", "value": 1},
        {"date": "2013-08-03", "unit": "EWR", "carrier": "C0", "value": 1},
        {"date": None, "unit": None, "carrier": "C0", "value": 1},
        {"date": "yesterday", "unit": "JFK", "carrier": "C0", "value": 1},
        {"date": "2013-08-03", "unit": "JFK", "carrier": "C0", "value": "many"},
        {"date": "2013-08-03", "unit": "JFK", "carrier": "C0", "value": 2**70},
        {"date": "2013-08-03", "unit": "JFK", "carrier": "C0", "value": 1, "extra": 1},
        {"carrier": "C0"},
        "C0",
        None,
    ],
    ids=str,
)
def test_a_json_row_that_is_not_of_the_partition_is_noticed(root: Path, row: Any) -> None:
    store = a_store(root, "json")
    publish(store, [JFK], [1])
    path = Path(store.location(JFK))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": [row]}))

    with pytest.raises(CorruptPartitionError, match=r"JFK\.json"):
        store.verify(JFK)


def test_a_json_row_without_a_value_is_no_row_with_a_null(root: Path) -> None:
    store = a_store(root, "json")
    publish(store, [JFK], [None])
    path = Path(store.location(JFK))
    path.write_text(path.read_text().replace(',"value":null', ""))

    with pytest.raises(CorruptPartitionError, match="row 0 has date, unit, carrier; expected"):
        store.verify(JFK)


@pytest.mark.parametrize("rows", [None, 3, "rows", {"a": 1}])
def test_a_json_file_without_a_list_of_rows_is_noticed(root: Path, rows: Any) -> None:
    store = a_store(root, "json")
    publish(store, [JFK], [1])
    path = Path(store.location(JFK))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": rows}))

    with pytest.raises(CorruptPartitionError, match=r"JFK\.json"):
        store.verify(JFK)


@pytest.mark.parametrize("before", ["tuesday", "monday"])
@pytest.mark.parametrize("name", FORMATS)
def test_restating_mends_a_file_whose_rows_were_damaged(root: Path, name: str, before: str) -> None:
    store = a_store(root, name)
    publish(store, [JFK_DELAY], [1.2345678901234567], source=before)
    path = Path(store.location(JFK_DELAY))
    whole = path.read_bytes()
    needle = b"1.234567890" if name == "json" else b"\xfbY\x8cB\xca\xc0\xf3?"
    damaged = bytearray(whole)
    damaged[whole.index(needle) + 2] ^= 1
    path.write_bytes(damaged)

    (published,) = publish(store, [JFK_DELAY], [1.2345678901234567], replace=True, source="tuesday")

    assert not published.adopted
    assert store.verify(JFK_DELAY) == published.record
    assert store.read(JFK_DELAY).column("value").to_pylist() == [1.2345678901234567]
