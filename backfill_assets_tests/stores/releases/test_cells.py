"""Rows stand in PostgreSQL without loss: their digest is the file's."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.catalogue import Category, Unit, ValueType
from backfill_assets.core.errors import NotAppliedError
from backfill_assets.core.partitions import ColumnType
from backfill_assets.core.releases import ReleaseKey
from backfill_assets.stores.releases.cells import cells_of, digest_of_cells
from backfill_assets.stores.releases.published import Content, PublishedRows
from backfill_assets.stores.tables import arrow_type, digest_of, record_of
from backfill_assets_tests.stores.examples import STORES, a_catalogue

if TYPE_CHECKING:
    from backfill_assets.core.partitions import Partition

DAY = date(2013, 8, 3)
AT = datetime(2013, 8, 4, 12, tzinfo=UTC)
VALUES = {
    ColumnType.STRING: st.text(),
    ColumnType.INT64: st.integers(-(2**63), 2**63 - 1),
    ColumnType.FLOAT64: st.floats(allow_nan=False, allow_infinity=False),
    ColumnType.BOOLEAN: st.booleans(),
}
HARD: dict[ColumnType, list[Any]] = {
    ColumnType.STRING: ["", "null", '"', "ü|,", "a\tb\\N", None],
    ColumnType.INT64: [0, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, None],
    ColumnType.FLOAT64: [0.1, -0.0, 5e-324, 1.7976931348623157e308, 3.0, None],
    ColumnType.BOOLEAN: [True, False, None, True, False, None],
}


def a_partition(category_type: ColumnType, column_type: ColumnType) -> Partition:
    catalogue = a_catalogue(
        units=[Unit("JFK")],
        categories=[Category("kind", category_type)],
        value_types=[ValueType("amount", column_type)],
    )
    return catalogue.partition("kind/amount", DAY, "JFK")


def a_table(partition: Partition, groups: list[Any], values: list[Any]) -> pa.Table:
    query = partition.query
    columns = {
        "date": pa.array([DAY] * len(groups), pa.date32()),
        "unit": pa.array(["JFK"] * len(groups), pa.string()),
        "kind": pa.array(groups, arrow_type(query.category_type)),
        "value": pa.array(values, arrow_type(query.column_type)),
    }
    return pa.table(columns)


@given(
    st.sampled_from(ColumnType).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(VALUES[kind] | st.none(), max_size=5))
    ),
    st.sampled_from(ColumnType).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(VALUES[kind] | st.none(), max_size=5))
    ),
)
@STORES
def test_cells_have_the_digest_of_the_rows(
    groups: tuple[ColumnType, list[Any]], values: tuple[ColumnType, list[Any]]
) -> None:
    partition = a_partition(groups[0], values[0])
    count = min(len(groups[1]), len(values[1]))
    table = a_table(partition, groups[1][:count], values[1][:count])
    cells = cells_of(partition.query, table)
    assert digest_of_cells(groups[0], values[0], cells) == digest_of(partition, table)


@pytest.mark.parametrize("category_type", ColumnType)
@pytest.mark.parametrize("column_type", ColumnType)
def test_hard_values_come_back_from_postgresql_as_they_were(
    database: str, category_type: ColumnType, column_type: ColumnType
) -> None:
    partition = a_partition(category_type, column_type)
    table = a_table(partition, HARD[category_type], HARD[column_type])
    content = Content(partition, record_of(partition, table), table)
    rows = PublishedRows(lambda: database)
    load(rows, database, content)
    (stored,) = rows.stored("flights", DAY).values()
    rows.close()
    assert stored.found == content.record
    assert not stored.is_changed


def test_a_value_that_postgresql_cannot_hold_is_a_definite_failure(database: str) -> None:
    partition = a_partition(ColumnType.STRING, ColumnType.INT64)
    table = a_table(partition, ["a\0b"], [1])
    content = Content(partition, record_of(partition, table), table)
    rows = PublishedRows(lambda: database)
    with pytest.raises(NotAppliedError, match="PostgreSQL cannot hold a value of 2013-08-03"):
        load(rows, database, content)
    assert rows.days("flights") == {}
    rows.close()


def load(rows: PublishedRows, database: str, content: Content) -> None:
    rows.prepare()
    with psycopg.connect(database) as connection:
        rows.load(connection, ReleaseKey("flights", DAY), [content], AT)
