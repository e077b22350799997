"""What a run was asked for is read from its tags, whoever launched it, and never too much."""

from __future__ import annotations

from datetime import date

import dagster as dg
import pytest

from backfill_assets.core.catalogue import Unit
from backfill_assets.core.cycles import Bounds
from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import make_plan
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.resources.run_requests import (
    asset_key,
    in_flight,
    job_name,
    job_queries,
    queries_of,
    requested_partitions,
    run_queries,
    run_request,
)
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_2,
    DAY_3,
    DAY_4,
    DAY_5,
    NOW,
    REVENUE,
    SHOPS,
    SOLD,
    SOLD_BY_HOUR,
    a_catalogue,
    rectangle,
)

ALL_UNITS = ["Paris", "Lyon", "Nice"]


def a_range(start: str, end: str) -> dict[str, str]:
    return {
        "dagster/asset_partition_range_start": start,
        "dagster/asset_partition_range_end": end,
    }


def keys(partitions: PartitionSet) -> list[str]:
    return [str(partition).removeprefix("shops/") for partition in partitions]


def a_run(
    tags: dict[str, str], *, job: str = "__ASSET_JOB", assets: list[dg.AssetKey] | None = None
) -> dg.DagsterRun:
    return dg.DagsterRun(
        job_name=job, tags=tags, asset_selection=None if assets is None else frozenset(assets)
    )


def test_a_range_is_a_rectangle_of_days_and_units() -> None:
    found = requested_partitions(
        SHOPS, [SOLD, REVENUE], a_range("2024-03-02|Lyon", "2024-03-03|Nice")
    )
    assert keys(found) == [
        "article/sold/2024-03-03/Lyon",
        "article/sold/2024-03-03/Nice",
        "article/revenue/2024-03-03/Lyon",
        "article/revenue/2024-03-03/Nice",
        "article/sold/2024-03-02/Lyon",
        "article/sold/2024-03-02/Nice",
        "article/revenue/2024-03-02/Lyon",
        "article/revenue/2024-03-02/Nice",
    ]


def test_a_range_of_units_follows_the_catalogue_and_never_the_alphabet() -> None:
    found = requested_partitions(SHOPS, [SOLD], a_range("2024-03-02|Paris", "2024-03-02|Lyon"))
    assert keys(found) == ["article/sold/2024-03-02/Paris", "article/sold/2024-03-02/Lyon"]

    whole = requested_partitions(SHOPS, [SOLD], a_range("2024-03-02|Paris", "2024-03-02|Nice"))
    assert len(whole) == 3


def test_a_range_within_one_unit_does_not_sweep_in_the_others() -> None:
    found = requested_partitions(SHOPS, [SOLD], a_range("2024-03-01|Lyon", "2024-03-03|Lyon"))
    assert found.masks == rectangle(SOLD, first=DAY_1, last=DAY_3, units=["Lyon"]).masks


@pytest.mark.parametrize(
    ("start", "end"),
    [("2024-03-03|Paris", "2024-03-01|Nice"), ("2024-03-01|Nice", "2024-03-03|Paris")],
)
def test_a_range_that_ends_before_it_begins_asks_for_nothing(start: str, end: str) -> None:
    assert not requested_partitions(SHOPS, [SOLD], a_range(start, end))


def test_a_single_key_of_the_page_is_one_partition_of_each_asset() -> None:
    tags = {
        "dagster/partition": "2024-03-02|Lyon",
        "dagster/partition/date": "2024-03-02",
        "dagster/partition/unit": "Lyon",
    }
    found = requested_partitions(SHOPS, [SOLD, REVENUE], tags)
    assert keys(found) == ["article/sold/2024-03-02/Lyon", "article/revenue/2024-03-02/Lyon"]


def test_two_dimensions_without_a_key_are_one_partition() -> None:
    tags = {"dagster/partition/date": "2024-03-02", "dagster/partition/unit": "Lyon"}
    assert keys(requested_partitions(SHOPS, [SOLD], tags)) == ["article/sold/2024-03-02/Lyon"]


def test_a_backfill_from_a_jobs_page_is_its_range_and_not_its_misleading_first_key() -> None:
    tags = a_range("2024-03-01|Lyon", "2024-03-05|Lyon") | {
        "dagster/partition/date": "2024-03-01",
        "dagster/partition/unit": "Paris",
        "dagster/partition_set": "shops_partitions_partition_set",
    }
    found = requested_partitions(SHOPS, [SOLD], tags)
    assert found.masks == rectangle(SOLD, first=DAY_1, last=DAY_5, units=["Lyon"]).masks


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"dagster/priority": "3"},
        {"dagster/asset_partition_range_start": "2024-03-01|Lyon"},
        {"dagster/partition/date": "2024-03-01"},
    ],
)
def test_a_run_without_partitions_asks_for_nothing(tags: dict[str, str]) -> None:
    assert not requested_partitions(SHOPS, [SOLD], tags)


@pytest.mark.parametrize(
    "tags",
    [
        a_range("2024-03-01|Paris", "2024-03-02|Lille"),
        {"dagster/partition": "2024-03-01|Lille"},
        {"dagster/partition/date": "2024-03-01", "dagster/partition/unit": "Lille"},
    ],
)
def test_an_unknown_unit_is_refused_and_the_known_ones_are_named(tags: dict[str, str]) -> None:
    with pytest.raises(UnknownPartitionError, match="unit 'Lille': shops has Paris, Lyon, Nice"):
        requested_partitions(SHOPS, [SOLD], tags)


@pytest.mark.parametrize("key", ["2024-03-01", "Lyon|2024-03-01", "2024-3-1|Lyon", "|", ""])
def test_a_tag_that_is_no_partition_key_is_refused(key: str) -> None:
    with pytest.raises(UnknownPartitionError, match=r"the form 'YYYY-MM-DD\|unit'"):
        requested_partitions(SHOPS, [SOLD], {"dagster/partition": key})


def test_a_runs_queries_are_its_assets_or_else_those_of_its_job() -> None:
    chosen = a_run({}, assets=[asset_key(REVENUE), dg.AssetKey(["shops", "report"])])
    assert run_queries(SHOPS, chosen) == [REVENUE]
    assert run_queries(SHOPS, a_run({}, job="shops_partitions")) == [SOLD, REVENUE]
    assert run_queries(SHOPS, a_run({}, job="another_job")) == []


def test_assets_of_others_are_none_of_ours() -> None:
    assert queries_of(SHOPS, [dg.AssetKey(["flights", "article", "sold"])]) == []


def test_in_flight_is_the_union_of_all_that_unfinished_runs_were_asked_for() -> None:
    runs = [
        a_run(a_range("2024-03-01|Paris", "2024-03-01|Lyon"), job="shops_partitions"),
        a_run({"dagster/partition": "2024-03-02|Nice"}, assets=[asset_key(SOLD)]),
        a_run({}, job="another_job"),
    ]
    assert keys(in_flight(SHOPS, runs)) == [
        "article/sold/2024-03-02/Nice",
        "article/sold/2024-03-01/Paris",
        "article/sold/2024-03-01/Lyon",
        "article/revenue/2024-03-01/Paris",
        "article/revenue/2024-03-01/Lyon",
    ]


def test_a_run_that_cannot_be_read_takes_nothing_up_and_hides_no_other() -> None:
    of_an_older_catalogue = a_run({"dagster/partition": "2024-03-01|Lille"}, job="shops_partitions")
    damaged = a_run(a_range("yesterday", "today"), job="shops_partitions")
    sound = a_run({"dagster/partition": "2024-03-02|Nice"}, assets=[asset_key(SOLD)])
    found = in_flight(SHOPS, [of_an_older_catalogue, damaged, sound])
    assert keys(found) == ["article/sold/2024-03-02/Nice"]


def test_there_is_one_job_for_each_grid_and_the_first_has_the_plain_name() -> None:
    assert {name: [q.name for q in queries] for name, queries in job_queries(SHOPS).items()} == {
        "shops_partitions": ["article/sold", "article/revenue"],
        "shops_partitions_from_2024_03_03": ["hour/sold", "hour/revenue"],
    }
    assert job_name(FLIGHTS, date(2013, 3, 1)) == "flights_partitions_from_2013_03_01"


def test_a_request_names_the_rectangle_the_assets_and_what_it_takes_up() -> None:
    catalogue = a_catalogue(units=[Unit("Paris"), Unit("Lyon"), Unit("Nice")])
    plan = make_plan(
        catalogue,
        present=rectangle(
            REVENUE, first=DAY_1, last=DAY_5, units=["Paris", "Lyon", "Nice"], catalogue=catalogue
        ),
        held=PartitionSet.empty(catalogue),
        in_flight=PartitionSet.empty(catalogue),
        now=NOW,
    )
    cycles = list(plan.cycles(Bounds()))
    history = cycles[2]
    request = run_request(catalogue, history, priority=-10)
    assert request.job_name == "shops_partitions"
    assert request.asset_selection == [asset_key(SOLD)]
    assert request.partition_key is None
    assert request.run_key is None  # a run key would be spent for ever
    assert request.tags == {
        "dagster/asset_partition_range_start": "2024-03-01|Paris",
        "dagster/asset_partition_range_end": "2024-03-04|Nice",
        "dagster/priority": "-10",
        "dagster/defer_asset_events": "true",
        "backfill_assets/cycle": (
            "12 partitions: article; all units; 2024-03-04 back to 2024-03-01"
        ),
    }
    assert requested_partitions(catalogue, history.queries, request.tags).masks == {
        "article/sold": dict.fromkeys([DAY_4, DAY_3, DAY_2, DAY_1], 0b111)
    }


def test_a_request_around_something_in_flight_names_a_part_of_the_units() -> None:
    plan = make_plan(
        SHOPS,
        present=PartitionSet.empty(SHOPS),
        held=PartitionSet.empty(SHOPS),
        in_flight=rectangle(SOLD, REVENUE, SOLD_BY_HOUR, first=DAY_5, last=DAY_5, units=["Lyon"]),
        now=NOW,
    )
    for cycle in plan.cycles(Bounds()):
        tags = run_request(SHOPS, cycle, priority=0).tags
        asked = requested_partitions(SHOPS, cycle.queries, tags)
        assert not asked & plan.blocked
        assert not cycle.partitions - asked
