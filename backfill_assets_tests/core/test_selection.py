"""A text names exactly the partitions that a person means, or is refused with what there is."""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

import pytest

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.selection import select

SHOPS = Catalogue(
    name="shops",
    closing=ClosingPolicy(zone=ZoneInfo("Pacific/Apia")),
    first_day=date(2011, 12, 28),
    units=[Unit("Paris"), Unit("Lyon"), Unit("a/b"), Unit("Q1 2024"), Unit("a..b*")],
    categories=[Category("article"), Category("hour")],
    value_types=[ValueType("sold"), ValueType("revenue")],
)
LATEST = date(2012, 1, 2)


def named(text: str) -> set[str]:
    return {f"{p.query.name}/{p.key}" for p in select(SHOPS, text, LATEST)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shops/article/sold/2011-12-28/Lyon", {"article/sold/2011-12-28|Lyon"}),
        (
            "shops/article,hour/sold/2011-12-28/Lyon,Paris,Lyon",
            {
                "article/sold/2011-12-28|Lyon",
                "article/sold/2011-12-28|Paris",
                "hour/sold/2011-12-28|Lyon",
                "hour/sold/2011-12-28|Paris",
            },
        ),
        (
            "*/hour/*/2012-01-01/Lyon",
            {"hour/sold/2012-01-01|Lyon", "hour/revenue/2012-01-01|Lyon"},
        ),
        # The 30th never was there, and a range passes over it.
        (
            "shops/hour/sold/2011-12-29..2011-12-31/Lyon",
            {"hour/sold/2011-12-29|Lyon", "hour/sold/2011-12-31|Lyon"},
        ),
        (
            "shops/hour/sold/..2011-12-29,2012-01-02../Lyon",
            {
                "hour/sold/2011-12-28|Lyon",
                "hour/sold/2011-12-29|Lyon",
                "hour/sold/2012-01-02|Lyon",
            },
        ),
        ("shops/hour/sold/2011-12-29/a/b", {"hour/sold/2011-12-29|a/b"}),
        ("shops/hour/sold/2011-12-29/Q1 2024", {"hour/sold/2011-12-29|Q1 2024"}),
        ("shops/hour/sold/2011-12-29/a..b*", {"hour/sold/2011-12-29|a..b*"}),
        ("shops/hour/sold/2012-01-05/Lyon", set()),  # no day that has closed
        ("shops/hour/sold/2011-01-05/Lyon", set()),  # before the first one
    ],
)
def test_a_text_names_what_a_person_means_and_nothing_beside_it(
    text: str, expected: set[str]
) -> None:
    assert named(text) == expected


def test_stars_name_everything_up_to_the_latest_closed_day() -> None:
    assert len(named("shops/*/*/*/*")) == 4 * 5 * 5  # queries, days without the 30th, units


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("shops/article/sold/2011-12-28", "expected catalogue/category/value_type/days/units"),
        ("", "selection ''"),
        ("stores/article/sold/2011-12-28/Lyon", "there is no catalogue 'stores', but shops"),
        ("shops/brand/sold/2011-12-28/Lyon", "category 'brand': there are 'article', 'hour'"),
        ("shops/article/cost/*/Lyon", "value type 'cost': there are 'sold', 'revenue'"),
        ("shops/article/sold/*/Rome", "unit 'Rome': there are 'Paris', 'Lyon'"),
        ("shops/article/sold/*/lyon", "unit 'lyon': there are"),
        ("shops/article/sold/*/", "unit '': there are"),
        ("shops/article/sold/yesterday/Lyon", "days 'yesterday': expected YYYY-MM-DD"),
        ("shops/article/sold/2011-12-32/Lyon", "days '2011-12-32': expected YYYY-MM-DD"),
        ("shops/article/sold//Lyon", "days '': expected YYYY-MM-DD"),
        ("shops/article/sold/2012-01-02..2012-01-01/Lyon", "the range ends before it begins"),
    ],
)
def test_a_text_that_names_nothing_known_is_refused_with_what_there_is(
    text: str, found: str
) -> None:
    with pytest.raises(UnknownPartitionError) as refusal:
        named(text)
    assert found in str(refusal.value)
