"""What a catalogue expects, and what it refuses when it is built."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.errors import CatalogueError, UnknownPartitionError
from backfill_assets.core.segments import text_of
from backfill_assets_tests.core.examples import a_catalogue
from backfill_assets_tests.core.strategies import all_partitions, any_text, catalogues


def with_units(*unit_names: Any) -> Catalogue:
    return a_catalogue(units=[Unit(name) for name in unit_names])


@pytest.mark.parametrize(
    ("unit", "found"),
    [
        (None, "unit None is a NoneType, not text"),
        (float("nan"), "unit nan is a float, not text"),
        (7, "unit 7 is a int, not text"),
        ("", "unit '': is empty"),
        (" ", "unit ' ': is empty"),
        ("\u3000", "unit '\\u3000': is empty"),
        ("A ", "unit 'A ': is empty, or begins or ends with a blank"),
        (" A", "unit ' A': is empty, or begins or ends with a blank"),
        ("A\n", "unit 'A\\n': is empty, or begins or ends with a blank"),
        ("\u200b", "unit '\\u200b': has characters that cannot be seen"),
        ("A\u200bB", "unit 'A\\u200bB': has characters that cannot be seen"),
        ("A\u00a0B", "unit 'A\\xa0B': has characters that cannot be seen"),
        ("A\tB", "unit 'A\\tB': has characters that cannot be seen"),
        ("A\x00B", "unit 'A\\x00B': has characters that cannot be seen"),
        ("A\ud800", "unit 'A\\ud800': has characters that cannot be seen"),
        ("*", "unit '*': it means every unit"),
        ("A|B", "unit 'A|B': Dagster gives '|' a meaning"),
        ("A,B", "unit 'A,B': Dagster gives ',' a meaning"),
        ("[A]", "unit '[A]': Dagster gives '[' a meaning"),
        ("A]", "unit 'A]': Dagster gives ']' a meaning"),
        ("A...B", "unit 'A...B': Dagster gives '...' a meaning"),
        ('A"', "unit 'A\"': Dagster gives '\"' a meaning"),
        ("x" * 67, f"unit '{'x' * 67}': its file name would be too long"),
        ("x" * 255, f"unit '{'x' * 255}': its file name would be too long"),
        ("É" * 34, f"unit '{'É' * 34}': its file name would be too long"),
    ],
)
def test_a_unit_that_no_key_or_path_can_carry_is_refused_by_name(unit: object, found: str) -> None:
    with pytest.raises(CatalogueError) as refusal:
        with_units("JFK", unit)
    assert str(refusal.value).startswith(found)


def test_a_unit_that_is_given_twice_is_refused() -> None:
    with pytest.raises(CatalogueError, match="unit 'JFK' is given twice; keep one"):
        with_units("JFK", "LGA", "JFK")


@pytest.mark.parametrize(
    "unit",
    [
        "..",
        "../../x",
        "/etc/x",
        "C:\\x",
        "~",
        "$HOME",
        "CON",
        "a:b",
        "a*",
        "end.",
        "Q1 2024",
        "É",
        "🛫",
        "x" * 66,
        "É" * 33,
        "🛫" * 16,
    ],
)
def test_an_odd_unit_is_accepted_and_stays_in_its_directory(unit: str) -> None:
    catalogue = with_units("JFK", unit)
    name = catalogue.unit_segments[unit]
    assert PurePosixPath("/root", name).parts == ("/", "root", name)
    assert text_of(name) == unit
    assert catalogue.parse(f"carrier/departures/2013-08-03/{unit}").unit == unit


def refusal_of(unit: str) -> str | None:
    """Return why a catalogue refuses a unit, or None where it takes it."""
    try:
        with_units(unit)
    except CatalogueError as refusal:
        return str(refusal)
    return None


@given(any_text)
def test_a_unit_is_refused_by_its_name_or_is_seen_whole_and_safe_in_a_key(text: str) -> None:
    refusal = refusal_of(text)
    if refusal is not None:
        assert refusal.startswith(f"unit {text!r}")
        return
    assert text == text.strip()
    assert text.isprintable()
    assert not {"|", ",", "[", "]"} & set(text)


@given(
    st.lists(any_text | st.sampled_from(["x" * 66, "X" * 66, "xX" * 33]), unique=True).map(
        lambda texts: [text for text in texts if refusal_of(text) is None] or ["JFK"]
    )
)
def test_units_have_distinct_short_paths_and_keys_that_name_them(texts: list[str]) -> None:
    catalogue = with_units(*texts)
    paths = catalogue.unit_segments
    assert len({path.lower() for path in paths.values()}) == len(texts)
    assert all(1 <= len(path) <= 200 for path in paths.values())
    for text in texts:
        partition = catalogue.partition("carrier/departures", date(2013, 8, 3), text)
        assert catalogue.parse(str(partition)) == partition
        assert catalogue.partition_of(partition.query, partition.key) == partition


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"name": "Flights"}, "catalogue 'Flights': use lower-case letters"),
        ({"name": ""}, "catalogue '': use lower-case letters"),
        ({"name": "../x"}, "catalogue '../x': use lower-case letters"),
        ({"name": "x\n"}, "catalogue 'x\\n': use lower-case letters"),
        ({"name": "x" * 64}, f"catalogue '{'x' * 64}': use lower-case letters"),
        ({"name": "nul"}, "catalogue 'nul': Windows keeps that name for a device"),
        ({"categories": []}, "no category is given; name at least one"),
        ({"categories": [Category("9a")]}, "category '9a': use lower-case letters"),
        ({"categories": [Category("date")]}, "category 'date': every file has a column"),
        ({"categories": [Category("unit")]}, "category 'unit': every file has a column"),
        ({"categories": [Category("value")]}, "category 'value': every file has a column"),
        ({"categories": [Category("com1")]}, "category 'com1': Windows keeps that name"),
        ({"categories": [Category("a"), Category("a")]}, "category 'a' is given twice"),
        ({"value_types": []}, "no value type is given; name at least one"),
        ({"value_types": [ValueType("a-b")]}, "value type 'a-b': use lower-case letters"),
        ({"value_types": [ValueType("aux")]}, "value type 'aux': Windows keeps that name"),
        ({"value_types": [ValueType("a"), ValueType("a")]}, "value type 'a' is given twice"),
        ({"value_types": [ValueType("date")]}, "value type 'date': every source has a column"),
        ({"value_types": [ValueType("unit")]}, "value type 'unit': every source has a column"),
        (
            {"value_types": [ValueType("departures"), ValueType("hour")]},
            "value type 'hour': a category has that name, and a source would have two such columns",
        ),
        ({"look_back_days": -1}, "look_back_days of 'flights' is -1; give 0 or more"),
        ({"units": []}, "no unit is given; name at least one"),
        (
            {"last_day": date(2013, 7, 31)},
            "catalogue 'flights' ends on 2013-07-31, before it begins on 2013-08-01",
        ),
        (
            {"units": [Unit("JFK", date(2013, 8, 2), date(2013, 8, 1))]},
            "unit 'JFK' closes on 2013-08-01, before it opens",
        ),
        (
            {"versions": {"carrier/arrivals": 2}},
            "versions names 'carrier/arrivals', which is no category/value_type of flights",
        ),
        (
            {"versions": {"hour/departures": 0}},
            "version 0 of 'hour/departures': versions begin at 1",
        ),
    ],
)
def test_a_catalogue_that_is_not_valid_says_what_is_wrong(
    changes: dict[str, Any], found: str
) -> None:
    with pytest.raises(CatalogueError) as refusal:
        a_catalogue(**changes)
    assert str(refusal.value).startswith(found)


def test_queries_are_categories_times_value_types_categories_outermost() -> None:
    catalogue = a_catalogue(value_types=[ValueType("departures"), ValueType("delays")])
    assert list(catalogue.queries_by_name) == [
        "carrier/departures",
        "carrier/delays",
        "hour/departures",
        "hour/delays",
    ]


def test_a_query_begins_on_the_latest_of_its_three_first_days() -> None:
    catalogue = a_catalogue(
        first_day=date(2013, 8, 1),
        categories=[Category("carrier"), Category("hour", first_day=date(2013, 8, 5))],
        value_types=[
            ValueType("departures", first_day=date(2013, 7, 1)),
            ValueType("delays", first_day=date(2013, 8, 3)),
        ],
    )
    assert {query.name: query.first_day for query in catalogue.queries} == {
        "carrier/departures": date(2013, 8, 1),
        "carrier/delays": date(2013, 8, 3),
        "hour/departures": date(2013, 8, 5),
        "hour/delays": date(2013, 8, 5),
    }
    assert [(grid.first_day, [q.name for q in grid.queries]) for grid in catalogue.grids] == [
        (date(2013, 8, 1), ["carrier/departures"]),
        (date(2013, 8, 3), ["carrier/delays"]),
        (date(2013, 8, 5), ["hour/departures", "hour/delays"]),
    ]


def test_a_version_belongs_to_one_query_and_begins_at_one() -> None:
    catalogue = a_catalogue(versions={"hour/departures": 3})
    assert [query.version for query in catalogue.queries] == [1, 3]


def test_days_go_back_from_the_last_and_leave_out_what_never_was() -> None:
    apia = a_catalogue(
        closing=ClosingPolicy(zone=ZoneInfo("Pacific/Apia")),
        first_day=date(2011, 12, 28),
        last_day=date(2011, 12, 31),
    )
    assert list(apia.days(date(2011, 1, 1), date(2012, 1, 5))) == [
        date(2011, 12, 31),
        date(2011, 12, 29),
        date(2011, 12, 28),
    ]
    assert list(apia.days(date(2011, 12, 29), date(2011, 12, 30))) == [date(2011, 12, 29)]


@pytest.mark.parametrize(
    ("now", "closed", "still_open"),
    [
        (datetime(2011, 12, 28, 9, 59, tzinfo=UTC), date(2011, 12, 26), date(2011, 12, 28)),
        (datetime(2011, 12, 29, 10, tzinfo=UTC), date(2011, 12, 28), date(2011, 12, 29)),
        (datetime(2011, 12, 30, 10, tzinfo=UTC), date(2011, 12, 29), date(2011, 12, 31)),
        (datetime(2011, 12, 31, 10, tzinfo=UTC), date(2011, 12, 31), date(2012, 1, 1)),
        (datetime(2012, 1, 1, 10, tzinfo=UTC), date(2012, 1, 1), None),
        (datetime(2031, 1, 1, tzinfo=UTC), date(2012, 1, 1), None),
    ],
)
def test_closed_days_end_with_the_catalogue_and_open_ones_follow_them(
    now: datetime, closed: date, still_open: date | None
) -> None:
    catalogue = a_catalogue(
        closing=ClosingPolicy(zone=ZoneInfo("Pacific/Apia")),
        first_day=date(2011, 12, 28),
        last_day=date(2012, 1, 1),
    )
    assert catalogue.latest_closed_day(now) == closed
    assert catalogue.first_open_day(now) == still_open


def test_a_unit_is_open_from_its_first_day_to_its_last_both_included() -> None:
    unit = Unit("JFK", date(2013, 8, 2), date(2013, 8, 3))
    days = [date(2013, 8, day) for day in (1, 2, 3, 4)]
    assert [unit.is_open(day) for day in days] == [False, True, True, False]
    assert Unit("JFK").is_open(date.min)
    assert Unit("JFK").is_open(date.max)


@pytest.mark.parametrize(
    "text",
    [
        "flights/carrier/departures/2013-08-03/JFK",
        "carrier/departures/2013-08-03/JFK",
        "flights/carrier/departures/2013-08-03|JFK",
        "carrier/departures/2013-08-03|JFK",
    ],
)
def test_a_partition_can_be_written_in_four_ways(text: str) -> None:
    assert str(a_catalogue().parse(text)) == "flights/carrier/departures/2013-08-03/JFK"


@pytest.mark.parametrize("text", ["same/count/2013-08-03/same", "same/same/count/2013-08-03/same"])
def test_a_category_may_be_called_like_its_catalogue(text: str) -> None:
    catalogue = a_catalogue(
        name="same",
        categories=[Category("same")],
        value_types=[ValueType("count")],
        units=[Unit("same")],
    )
    assert str(catalogue.parse(text)) == "same/same/count/2013-08-03/same"


def test_a_unit_that_looks_like_a_path_is_parsed_whole() -> None:
    catalogue = with_units("2013-08-04/JFK", "JFK")
    parsed = catalogue.parse("carrier/departures/2013-08-03/2013-08-04/JFK")
    assert (parsed.day, parsed.unit) == (date(2013, 8, 3), "2013-08-04/JFK")


@given(st.data())
def test_every_partition_is_parsed_from_its_own_text(data: st.DataObject) -> None:
    catalogue = data.draw(catalogues())
    partition = data.draw(st.sampled_from(all_partitions(catalogue)))
    assert catalogue.parse(str(partition)) == partition


@pytest.mark.parametrize(
    "text",
    [
        "",
        "JFK",
        "2013-08-03|JFK",
        "carrier/2013-08-03/JFK",
        "carrier/departures/2013-08-03",
        "carrier/departures/2013-08-03/",
        "carrier/departures/20130803/JFK",
        "carrier/departures/2013-02-29/JFK",
        "carrier|departures/2013-08-03/JFK",
        "/carrier/departures/2013-08-03/JFK",
        "other/carrier/departures/2013-08-03/JFK",
        "carrier/departures/2013-08-03/JFK\n",
    ],
)
def test_text_of_another_form_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnknownPartitionError) as refusal:
        a_catalogue().parse(text)
    assert str(refusal.value) == (
        f"partition {text!r}: expected flights/category/value_type/YYYY-MM-DD/unit"
    )


def test_a_query_or_unit_that_is_not_there_is_refused_with_those_that_are() -> None:
    catalogue = a_catalogue()
    with pytest.raises(UnknownPartitionError) as no_query:
        catalogue.parse("hour/arrivals/2013-08-03/JFK")
    assert str(no_query.value) == (
        "query 'hour/arrivals': flights has carrier/departures, hour/departures"
    )
    with pytest.raises(UnknownPartitionError) as no_unit:
        catalogue.parse("hour/departures/2013-08-03/jfk")
    assert str(no_unit.value) == "unit 'jfk': flights has 'EWR', 'JFK', 'LGA'"


def test_what_is_not_expected_says_why() -> None:
    catalogue = a_catalogue(
        closing=ClosingPolicy(zone=ZoneInfo("Pacific/Apia")),
        first_day=date(2011, 12, 28),
        last_day=date(2012, 1, 2),
        units=[Unit("APW", last_day=date(2011, 12, 31)), Unit("FGI")],
        categories=[Category("carrier"), Category("hour", first_day=date(2011, 12, 29))],
    )
    reasons = {
        text: catalogue.why_not_expected(catalogue.parse(text))
        for text in (
            "carrier/departures/2011-12-27/APW",
            "hour/departures/2011-12-28/APW",
            "hour/departures/2011-12-29/APW",
            "hour/departures/2011-12-30/APW",
            "hour/departures/2012-01-01/APW",
            "hour/departures/2012-01-01/FGI",
            "hour/departures/2012-01-03/FGI",
        )
    }
    assert list(reasons.values()) == [
        "carrier/departures begins on 2011-12-28",
        "hour/departures begins on 2011-12-29",
        None,
        "2011-12-30 never was in Pacific/Apia",
        "unit 'APW' is not open on 2012-01-01",
        None,
        "flights ends on 2012-01-02",
    ]


def test_changing_the_zone_changes_when_a_day_closes_and_never_its_name() -> None:
    moments = {}
    for zone in ("UTC", "Europe/Madrid"):
        catalogue = a_catalogue(closing=ClosingPolicy(zone=ZoneInfo(zone)))
        partition = catalogue.parse("carrier/departures/2013-08-03/JFK")
        moments[zone] = (partition.key, catalogue.closing.closes_at(partition.day))
    assert moments == {
        "UTC": ("2013-08-03|JFK", datetime(2013, 8, 4, tzinfo=UTC)),
        "Europe/Madrid": (
            "2013-08-03|JFK",
            datetime(2013, 8, 4, tzinfo=UTC) - timedelta(hours=2),
        ),
    }
