"""One wide table of a source becomes partitions: all that are wanted, newest first, sorted."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies

from backfill_assets.core.errors import SourceError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.stores.splitting import split
from backfill_assets.stores.tables import conform
from backfill_assets_tests.stores.examples import DAY, FLIGHTS, NEXT_DAY, STORES

if TYPE_CHECKING:
    from backfill_assets.core.partitions import Partition

CARRIERS = [query for query in FLIGHTS.queries if query.category == "carrier"]
HOURS = [query for query in FLIGHTS.queries if query.category == "hour"]
DAYS = [date(2013, 8, 1) + timedelta(days=n) for n in range(4)]
ALL_UNITS = 0b111
COLUMNS = ["date", "unit", "carrier", "departures", "delay"]

ROWS = [
    [DAY, "JFK", "B6", 2, 5.5],
    [NEXT_DAY, "EWR", "UA", 7, None],
    [DAY, "JFK", "AA", 1, -3.0],
    [DAY, "EWR", None, None, None],
    [DAY, "EWR", "ÜA", 9, 0.0],
]


def a_frame(rows: list[list[Any]] = ROWS, **changes: list[Any]) -> pa.Table:
    """Return rows as a table, with some columns changed."""
    columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    return pa.table(columns | changes)


def wanted(days: list[date], units: int = ALL_UNITS) -> PartitionSet:
    return PartitionSet.rectangle(FLIGHTS, FLIGHTS.queries, days, units)


def parts(frame: Any, days: list[date], units: int = ALL_UNITS) -> list[tuple[str, list[Any]]]:
    """Return what a split gives as names and pairs of group and value."""
    return [
        (
            f"{partition.query.value_type} {partition.key}",
            list(zip(table.column(2).to_pylist(), table.column(3).to_pylist(), strict=True)),
        )
        for partition, table in split(frame, CARRIERS, wanted(days, units))
    ]


def test_partitions_come_newest_day_first_then_in_catalogue_order_with_empty_ones() -> None:
    assert parts(a_frame(), [DAY, NEXT_DAY]) == [
        ("departures 2013-08-04|EWR", [("UA", 7)]),
        ("departures 2013-08-04|JFK", []),
        ("departures 2013-08-04|LGA", []),
        ("delay 2013-08-04|EWR", [("UA", None)]),
        ("delay 2013-08-04|JFK", []),
        ("delay 2013-08-04|LGA", []),
        ("departures 2013-08-03|EWR", [("ÜA", 9), (None, None)]),
        ("departures 2013-08-03|JFK", [("AA", 1), ("B6", 2)]),
        ("departures 2013-08-03|LGA", []),
        ("delay 2013-08-03|EWR", [("ÜA", 0.0), (None, None)]),
        ("delay 2013-08-03|JFK", [("AA", -3.0), ("B6", 5.5)]),
        ("delay 2013-08-03|LGA", []),
    ]


def test_rows_of_partitions_that_are_not_wanted_are_left_out() -> None:
    assert parts(a_frame(), [NEXT_DAY], units=0b001) == [
        ("departures 2013-08-04|EWR", [("UA", 7)]),
        ("delay 2013-08-04|EWR", [("UA", None)]),
    ]
    assert parts(a_frame(), []) == []


def test_only_the_asked_queries_are_split_and_need_their_columns() -> None:
    frame = a_frame().drop_columns(["delay"])

    found = [p for p, _ in split(frame, CARRIERS[:1], wanted([DAY]))]

    assert {p.query.name for p in found} == {"carrier/departures"}


@pytest.mark.parametrize("frame", [a_frame(ROWS[:1]).slice(0, 0), pd.DataFrame(columns=COLUMNS)])
def test_a_source_without_rows_gives_empty_partitions(frame: Any) -> None:
    assert [rows for _, rows in parts(frame, [DAY])] == [[]] * 6


def test_every_table_is_ready_to_be_staged() -> None:
    for partition, table in split(a_frame(), CARRIERS, wanted([DAY, NEXT_DAY])):
        assert conform(partition, table).equals(table)


def test_columns_that_nobody_asked_for_are_ignored() -> None:
    frame = a_frame().append_column("note", pa.array(["x"] * 5))

    assert parts(frame, [DAY]) == parts(a_frame(), [DAY])


@pytest.mark.parametrize(
    "frame",
    [
        a_frame().to_pandas(),
        a_frame().to_pandas().iloc[::-1],
        a_frame().to_pandas().assign(date=lambda f: pd.to_datetime(f["date"])),
        a_frame().to_pandas().assign(date=lambda f: f["date"].map(str)),
        a_frame().to_pandas().convert_dtypes(),
        a_frame().to_pandas().astype({"unit": "category", "carrier": "category"}),
        pa.concat_tables([a_frame(ROWS[3:]), a_frame(ROWS[:3])]),
    ],
    ids=["pandas", "reversed", "timestamps", "text dates", "nullable", "categories", "chunks"],
)
def test_pandas_and_arrow_in_any_order_give_the_same(frame: Any) -> None:
    assert parts(frame, [DAY, NEXT_DAY]) == parts(a_frame(), [DAY, NEXT_DAY])


def test_a_category_of_numbers_is_sorted_as_numbers() -> None:
    frame = pa.table(
        {
            "date": [DAY] * 3,
            "unit": ["JFK"] * 3,
            "hour": [10, 9, 100],
            "departures": [1, 2, 3],
            "delay": [0.0, 0.0, 0.0],
        }
    )

    tables = {p.key: t for p, t in split(frame, HOURS[:1], wanted([DAY]))}

    assert tables["2013-08-03|JFK"].column("hour").to_pylist() == [9, 10, 100]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (
            a_frame(unit=["JFK", "EWR", "JFK", "EWR", "ORD"]),
            "unit 'ORD' is not among EWR, JFK, LGA",
        ),
        (a_frame(unit=["JFK", None, "JFK", "EWR", "EWR"]), "1 rows have no 'unit'"),
        (a_frame(date=[DAY, None, None, DAY, DAY]), "2 rows have no 'date'"),
        (a_frame(date=[None] * 5), "5 rows have no 'date'"),
        (
            a_frame([*ROWS, ROWS[0]]),
            "carrier 'B6' stands twice on 2013-08-03 for unit 'JFK'",
        ),
        (a_frame([*ROWS, ROWS[3]]), "carrier None stands twice on 2013-08-03 for unit 'EWR'"),
        (
            a_frame().drop_columns(["delay"]),
            "no column 'delay' among date, unit, carrier, departures",
        ),
        (a_frame().drop_columns(["unit"]), "no column 'unit' among date, carrier"),
        (a_frame(departures=["2"] * 5), "column 'departures' is declared int64"),
        (a_frame(departures=[1.5] * 5), "column 'departures' is declared int64"),
        (a_frame(carrier=[1, 2, 3, 4, 5]), "column 'carrier' is declared string"),
        (a_frame(date=["today"] * 5), "column 'date' is declared date32"),
        (
            a_frame(date=[datetime(2013, 8, 3, 12)] * 5),  # noqa: DTZ001 - as a careless source
            "column 'date' is declared date32",
        ),
        (pa.table([[1], [2]], names=["delay", "delay"]), "column 'delay' stands twice"),
        (pd.DataFrame({"unit": ["JFK", 3]}), "Arrow cannot hold"),
        ([], "got a list"),
    ],
)
def test_a_fault_of_the_source_names_the_source_and_the_fault(frame: Any, said: str) -> None:
    with pytest.raises(SourceError, match=f"source of flights/carrier: .*{said}"):
        parts(frame, [DAY, NEXT_DAY])


groups = strategies.tuples(
    strategies.sampled_from(DAYS),
    strategies.sampled_from(FLIGHTS.unit_names),
    strategies.sampled_from([None, "", "AA", "B6", "Ü", "aa"]),
)
figures = strategies.tuples(
    strategies.none() | strategies.integers(-5, 5), strategies.none() | strategies.floats(-5, 5)
)
names = strategies.sampled_from(
    [FLIGHTS.partition(q.name, d, u) for q in CARRIERS for d in DAYS for u in FLIGHTS.unit_names]
)


@STORES
@given(
    strategies.dictionaries(groups, figures, max_size=25).flatmap(
        lambda rows: strategies.permutations(list(rows.items()))
    ),
    strategies.sets(names, max_size=12),
    strategies.booleans(),
)
def test_any_split_is_what_filtering_the_rows_one_by_one_gives(
    rows: list[Any],
    asked: set[Partition],
    as_pandas: bool,  # noqa: FBT001 - drawn
) -> None:
    schema = pa.schema(
        [
            ("date", pa.date32()),
            ("unit", pa.string()),
            ("carrier", pa.string()),
            ("departures", pa.int64()),
            ("delay", pa.float64()),
        ]
    )
    flat = [dict(zip(COLUMNS, (*group, *figure), strict=True)) for group, figure in rows]
    frame = pa.Table.from_pylist(flat, schema=schema)

    found = list(
        split(frame.to_pandas() if as_pandas else frame, CARRIERS, PartitionSet.of(FLIGHTS, asked))
    )

    order = [FLIGHTS.unit_names.index, [q.name for q in CARRIERS].index]
    assert [p for p, _ in found] == sorted(
        asked, key=lambda p: (-p.day.toordinal(), order[1](p.query.name), order[0](p.unit))
    )
    for partition, table in found:
        mine = [r for r in flat if (r["date"], r["unit"]) == (partition.day, partition.unit)]
        mine.sort(key=lambda r: (r["carrier"] is None, (r["carrier"] or "").encode()))
        assert table.to_pylist() == [
            {
                "date": r["date"],
                "unit": r["unit"],
                "carrier": r["carrier"],
                "value": r[partition.query.value_type],
            }
            for r in mine
        ]
