"""The names of a partition: its key in Dagster, its text for people."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.partitions import (
    ColumnType,
    Partition,
    Query,
    parse_day,
    parse_partition_key,
    partition_key,
)
from backfill_assets_tests.core.strategies import any_text

# The other ways of ISO 8601 that Python reads, and some that it does not.
SPELLINGS = (
    "%Y%m%d",
    "%G-W%V-%u",
    "%GW%V%u",
    "%G-W%V",
    "%Y-%j",
    "%Y-%m",
    "%-Y-%-m-%-d",
    "%Y-%m-%d",
)

days = st.dates(date(2, 1, 1), date(9998, 12, 31))

QUERY = Query(
    catalogue="flights",
    category="carrier",
    value_type="departures",
    category_type=ColumnType.STRING,
    column_type=ColumnType.FLOAT64,
    first_day=date(2013, 1, 1),
)


def test_a_partition_has_one_name_for_dagster_and_one_for_people() -> None:
    partition = Partition(QUERY, date(2013, 8, 3), "JFK")
    assert partition.key == "2013-08-03|JFK"
    assert str(partition) == "flights/carrier/departures/2013-08-03/JFK"
    assert QUERY.asset_path == ("flights", "carrier", "departures")
    assert QUERY.name == "carrier/departures"


@given(days, any_text)
def test_a_key_gives_back_its_day_and_unit(day: date, unit: str) -> None:
    assert parse_partition_key(partition_key(day, unit)) == (day, unit)


@given(st.tuples(days, any_text), st.tuples(days, any_text))
def test_distinct_days_or_units_have_distinct_keys(
    one: tuple[date, str], other: tuple[date, str]
) -> None:
    assert (partition_key(*one) == partition_key(*other)) == (one == other)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "|",
        "JFK",
        "2013-08-03",
        "2013-08-03|",
        "2013-08-03/JFK",
        "|JFK",
        "JFK|2013-08-03",
        "20130803|JFK",
        "2013-W31-6|JFK",
        "2013-8-3|JFK",
        "2013-02-29|JFK",
        "2013-08-03T00:00|JFK",
        " 2013-08-03|JFK",
        "0000-01-01|JFK",
        "0001-12-31|JFK",
        "9999-12-31|JFK",  # "for ever" in many a database; it has no midnight after it
        "２０１３-08-03|JFK",  # noqa: RUF001 - full-width digits
    ],
)
def test_a_key_of_another_form_is_refused_by_name(key: str) -> None:
    with pytest.raises(UnknownPartitionError) as refusal:
        parse_partition_key(key)
    assert str(refusal.value) == f"partition key {key!r}: expected the form 'YYYY-MM-DD|unit'"


@given(days)
def test_a_day_is_read_as_it_is_written(day: date) -> None:
    assert parse_day(day.isoformat()) == day


@given(
    st.text("0123456789-W", max_size=12)
    | st.builds(date.strftime, st.dates(), st.sampled_from(SPELLINGS))
)
def test_a_day_has_one_spelling_and_everything_else_is_none(text: str) -> None:
    day = parse_day(text)
    assert day is None or day.isoformat() == text
