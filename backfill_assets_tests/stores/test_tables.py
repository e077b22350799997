"""Rows are brought into their declared types, or refused by name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from backfill_assets.core.catalogue import Category, ValueType
from backfill_assets.core.errors import SourceError
from backfill_assets.core.partitions import ColumnType
from backfill_assets.stores.tables import conform, record_of, schema_of
from backfill_assets_tests.stores.examples import DAY, JFK, JFK_DELAY, NEXT_DAY, a_catalogue

NAN = float("nan")
TYPES = a_catalogue(
    categories=[Category("carrier")],
    value_types=[ValueType(f"as_{t}", t) for t in ColumnType],
)


def values_of(column_type: str, values: Any) -> list[Any]:
    """Return values after they were brought into a declared type."""
    partition = TYPES.partition(f"carrier/as_{column_type}", DAY, "JFK")
    frame = pa.table({"carrier": ["C0"] * len(values), "value": values})
    result: list[Any] = conform(partition, frame).column("value").to_pylist()
    return result


def test_date_and_unit_are_filled_in() -> None:
    table = conform(JFK, pd.DataFrame({"carrier": ["AA", "B6"], "value": [1, 2]}))

    assert table.schema == schema_of(JFK.query)
    assert table.column("date").to_pylist() == [DAY, DAY]
    assert table.column("unit").to_pylist() == ["JFK", "JFK"]


def test_rows_keep_their_order() -> None:
    table = conform(JFK, pd.DataFrame({"carrier": ["ZZ", "AA"], "value": [1, 2]}))

    assert table.column("carrier").to_pylist() == ["ZZ", "AA"]


def test_nan_in_a_data_frame_is_null() -> None:
    frame = pd.DataFrame({"carrier": ["AA", None, NAN], "value": [1.5, NAN, None]})

    table = conform(JFK_DELAY, frame)

    assert table.column("value").to_pylist() == [1.5, None, None]
    assert table.column("carrier").to_pylist() == ["AA", None, None]


@pytest.mark.parametrize("value", [float("inf"), -float("inf")])
@pytest.mark.parametrize("make", [pd.DataFrame, pa.table])
def test_an_infinite_value_is_refused_by_name(make: Any, value: float) -> None:
    table = conform(JFK_DELAY, make({"carrier": ["AA"], "value": [value]}))

    with pytest.raises(SourceError, match=r"flights/carrier/delay/2013-08-03/JFK.*infinite"):
        record_of(JFK_DELAY, table)


@pytest.mark.parametrize(
    ("column_type", "values", "expected"),
    [
        ("int64", pa.array([1, 2], pa.int8()), [1, 2]),
        ("int64", pa.array([1.0, None]), [1, None]),
        ("int64", pa.array([2**63 - 1], pa.uint64()), [2**63 - 1]),
        ("float64", pa.array([1, 2]), [1.0, 2.0]),
        ("float64", pa.array([Decimal("1.25")]), [1.25]),
        ("float64", pa.array([1.5], pa.float32()), [1.5]),
        ("string", pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
        ("string", pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
        ("boolean", pa.array([True, None]), [True, None]),
        *((t, pa.nulls(2), [None, None]) for t in ("int64", "float64", "string", "boolean")),
        *((t, pa.array([None], pa.float64()), [None]) for t in ("string", "boolean", "int64")),
        *((t, pa.array([], pa.float64()), []) for t in ("string", "boolean", "int64")),
    ],
)
def test_a_value_that_fits_its_declared_type_is_taken(
    column_type: str, values: pa.Array, expected: list[Any]
) -> None:
    assert values_of(column_type, values) == expected


@pytest.mark.parametrize(
    ("column_type", "values"),
    [
        ("int64", ["1"]),
        ("int64", [1.5]),
        ("int64", [True]),
        ("int64", pa.array([2**63], pa.uint64())),
        ("int64", pa.array([NAN])),
        ("float64", ["1.5"]),
        ("float64", [True]),
        ("float64", [2**53 + 1]),  # no float holds it
        ("string", [1]),
        ("string", [1.5]),
        ("string", [True]),
        ("string", [b"\xff"]),
        ("string", [DAY]),
        ("boolean", [1]),
        ("boolean", ["true"]),
        ("boolean", [0.5]),
        ("float64", [datetime(2013, 8, 3, tzinfo=UTC)]),
        ("float64", [[1.0]]),
        ("string", [{"a": 1}]),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(column_type: str, values: Any) -> None:
    name = f"flights/carrier/as_{column_type}/2013-08-03/JFK"

    with pytest.raises(SourceError, match=rf"{name}: column 'value' is declared"):
        values_of(column_type, values)


@pytest.mark.parametrize(
    "frame",
    [
        {"carrier": ["AA"]},
        {"value": [1]},
        {"carrier": ["AA"], "value": [1], "note": ["x"]},
        {"hour": [1], "value": [1]},
        {},
    ],
)
@pytest.mark.parametrize("make", [pd.DataFrame, pa.table])
def test_a_missing_or_unknown_column_is_refused_naming_what_was_found_and_expected(
    make: Any, frame: dict[str, Any]
) -> None:
    with pytest.raises(SourceError, match=r"JFK: found columns .*; expected date, unit, carrier"):
        conform(JFK, make(frame))


@pytest.mark.parametrize("make", [pa.Table.from_arrays, None], ids=["arrow", "pandas"])
def test_a_column_that_stands_twice_is_refused_by_name(make: Any) -> None:
    names = ["carrier", "value", "value"]
    if make:
        frame = make([pa.array(["AA"]), pa.array([1]), pa.array([2])], names=names)
    else:
        frame = pd.DataFrame([["AA", 1, 2]], columns=names)

    with pytest.raises(SourceError, match="JFK: column 'value' stands twice"):
        conform(JFK, frame)


@pytest.mark.parametrize("day", [NEXT_DAY, "2013-08-04", datetime(2013, 8, 4), None])  # noqa: DTZ001
def test_a_row_of_another_day_is_refused_by_name(day: Any) -> None:
    dates = [DAY.isoformat() if isinstance(day, str) else type(day or DAY)(2013, 8, 3), day]
    frame = pa.table({"date": dates, "carrier": ["AA", "B6"], "value": [1, 2]})

    with pytest.raises(SourceError, match=r"JFK: a row has date .*; it belongs elsewhere"):
        conform(JFK, frame)


def test_a_row_of_another_unit_is_refused_by_name() -> None:
    frame = pd.DataFrame({"unit": ["JFK", "LGA"], "carrier": ["AA", "B6"], "value": [1, 2]})

    with pytest.raises(SourceError, match="JFK: a row has unit 'LGA'; it belongs elsewhere"):
        conform(JFK, frame)


@pytest.mark.parametrize("units", [["LGA"], ["LGA", "JFK"], ["JFK", "JFK", "LGA"], ["JFK", None]])
@pytest.mark.parametrize("chunks", [1, 2])
def test_a_table_of_the_right_schema_is_looked_at_all_the_same(
    units: list[str | None], chunks: int
) -> None:
    count = len(units)
    columns = {"date": [DAY], "unit": ["JFK"], "carrier": ["AA"], "value": [1]}
    own = pa.table(columns, schema=schema_of(JFK.query))
    columns = {name: values * count for name, values in columns.items()} | {"unit": units}
    other = pa.table(columns, schema=schema_of(JFK.query))

    with pytest.raises(SourceError, match=r"a row has unit ('LGA'|None)"):
        conform(JFK, pa.concat_tables([own] * (chunks - 1) + [other]))


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_table_of_the_right_schema_is_taken_as_it_is(count: int) -> None:
    columns = {"date": [DAY], "unit": ["JFK"], "carrier": ["AA"], "value": [1]}
    columns = {name: values * count for name, values in columns.items()}
    table = pa.table(columns, schema=schema_of(JFK.query))

    assert conform(JFK, table) is table


@pytest.mark.parametrize(
    "instant",
    [datetime(2013, 8, 3, 23, 30), datetime(2013, 8, 3, 23, 30, tzinfo=UTC)],  # noqa: DTZ001
)
def test_an_instant_that_is_no_midnight_is_no_date(instant: datetime) -> None:
    frame = pa.table({"date": [instant], "carrier": ["AA"], "value": [1]})

    with pytest.raises(SourceError, match="column 'date' is declared date32"):
        conform(JFK, frame)


def test_a_midnight_is_a_date() -> None:
    frame = pd.DataFrame({"date": [pd.Timestamp(2013, 8, 3)], "carrier": ["AA"], "value": [1]})

    assert conform(JFK, frame).column("date").to_pylist() == [date(2013, 8, 3)]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"carrier": ["AA", 1], "value": [1, 2]}),
        pd.DataFrame({"carrier": ["AA"], "value": [1 + 2j]}),
        pd.DataFrame({"carrier": ["AA"], "value": [2**70]}),
        pd.DataFrame({"carrier": ["AA"], "value": [object()]}),
        pd.DataFrame({"carrier": ["AA", "B6"], "value": [pd.Timestamp(2013, 8, 3), None]}),
    ],
    ids=["mixed", "complex", "large", "object", "timestamps"],
)
def test_a_frame_that_arrow_cannot_hold_is_refused_by_name(frame: pd.DataFrame) -> None:
    with pytest.raises(SourceError, match="flights/carrier/departures/2013-08-03/JFK: "):
        conform(JFK, frame)


@pytest.mark.parametrize("frame", [None, [], {"carrier": []}, "rows", pd.Series([1])])
def test_what_is_no_frame_is_refused_by_its_type(frame: Any) -> None:
    with pytest.raises(SourceError, match=f"JFK: got a {type(frame).__name__}; return"):
        conform(JFK, frame)
