"""What Dagster is told by a run: each committed partition once, with its own facts."""

# ruff: noqa: TID251 - terminates a run as Dagster does

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from backfill_assets.core.cycles import Bounds
from backfill_assets.resources.run_requests import ON_COMMITTED_TAG
from backfill_assets_tests.resources.dagster_of_tests import Dagster, a_key, a_range, failures
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_3,
    DAY_5,
    REVENUE,
    SHOPS,
    SOLD,
    Shops,
    a_project,
    committed,
    fill,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

ALL_DAYS = a_range("2024-03-01|Paris", "2024-03-05|Nice")


@pytest.fixture
def dagster(root: Path, instance: dg.DagsterInstance) -> Dagster:
    return Dagster(a_project(root), instance)


def partitions(events: list[dg.AssetMaterialization]) -> list[str]:
    return [str(event.partition) for event in events]


def keys(dagster: Dagster) -> Iterator[str]:
    return (p.key for p in committed(dagster.project).only([SOLD]))


def state(event: dg.AssetMaterialization) -> object:
    return event.metadata["state"].value


def test_a_run_of_the_sensor_tells_each_partition_once_newest_first(dagster: Dagster) -> None:
    dagster.complete()
    assert partitions(dagster.events(SOLD)) == list(keys(dagster))
    assert {state(event) for event in dagster.events(SOLD)} == {"committed"}


def test_an_event_has_the_files_own_rows_bytes_digest_and_version(dagster: Dagster) -> None:
    dagster.tick_and_run()
    event = dagster.events(REVENUE)[0]
    partition = SHOPS.partition("article/revenue", DAY_5, "Paris")
    record = dagster.project.store.verify(partition)
    place = dagster.project.store.location(partition)
    assert event.partition == "2024-03-05|Paris"
    assert event.tags == {
        "dagster/partition/date": "2024-03-05",
        "dagster/partition/unit": "Paris",
        "dagster/data_version": record.digest,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": "1",
    }
    assert event.metadata == {
        "state": dg.TextMetadataValue("committed"),
        "rows": dg.IntMetadataValue(2),
        "bytes": dg.IntMetadataValue(Path(place).stat().st_size),
        "path": dg.PathMetadataValue(place),
    }


def test_a_persons_run_tells_each_partition_once_too(dagster: Dagster) -> None:
    result = dagster.ask([SOLD, REVENUE], ALL_DAYS)
    assert result.success
    told = dagster.events(SOLD)
    assert sorted(partitions(told)) == sorted([*keys(dagster), "2024-03-01|Nice"])
    assert len(dagster.events(REVENUE)) == 15


def test_a_single_key_is_told_alone(dagster: Dagster) -> None:
    assert dagster.ask([SOLD], a_key("2024-03-05|Lyon")).success
    assert partitions(dagster.events(SOLD)) == ["2024-03-05|Lyon"]
    assert dagster.events(REVENUE) == []
    assert [str(p) for p in committed(dagster.project)] == ["shops/article/sold/2024-03-05/Lyon"]


def test_the_runs_outputs_say_what_it_did(dagster: Dagster) -> None:
    fill(dagster.project, days=[DAY_5])
    result = dagster.ask([SOLD, REVENUE], ALL_DAYS)
    outcome = result.get_asset_materialization_events()
    assert outcome == []  # Dagster's own are deferred, and ours are in the log alone
    (handled, _) = [e for e in result.all_events if e.event_type_value == "HANDLED_OUTPUT"]
    facts = handled.event_specific_data.metadata  # type: ignore[union-attr]
    assert {name: facts[name].value for name in ("committed", "committed_before", "left")} == {
        "committed": 22,
        "committed_before": 6,
        "left": 0,
    }
    assert "stopped_by" not in facts


def test_a_run_of_the_sensor_that_a_bound_ended_says_which_and_what_is_left(
    root: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backfill_assets.resources import partition_stream

    monkeypatch.setattr(partition_stream, "MOST_DAYS", 2)
    dagster = Dagster(a_project(root, bounds=Bounds(max_files=12)), instance)
    fill(dagster.project, days=[DAY_5])
    (request, _) = dagster.asks()
    result = dagster.execute(request)
    assert result.success
    handled = next(e for e in result.all_events if e.event_type_value == "HANDLED_OUTPUT")
    facts = handled.event_specific_data.metadata  # type: ignore[union-attr]
    assert {name: facts[name].value for name in ("committed", "stopped_by", "left")} == {
        "committed": 12,
        "stopped_by": "max_files",
        "left": 10,
    }
    dagster.complete()
    assert sorted(partitions(dagster.events(SOLD))) == sorted(keys(dagster))


def test_the_sensor_does_not_tell_again_what_stood_committed(dagster: Dagster) -> None:
    request = dagster.asks()[0]
    assert dagster.execute(request).success
    assert dagster.execute(request).success
    assert len(dagster.events(SOLD)) == 3


def test_a_person_is_told_again_what_stood_committed(dagster: Dagster) -> None:
    fill(dagster.project)
    assert dagster.ask([SOLD], ALL_DAYS).success
    events = dagster.events(SOLD)
    assert len(events) == 15
    assert {state(e) for e in events} == {"committed before", "not expected"}
    record = dagster.project.store.verify(SHOPS.partition("article/sold", DAY_5, "Paris"))
    newest = next(e for e in events if e.partition == "2024-03-05|Paris")
    assert newest.tags is not None
    assert newest.tags["dagster/data_version"] == record.digest


def test_what_is_not_expected_is_told_with_its_state_and_why(dagster: Dagster) -> None:
    assert dagster.ask([SOLD], a_key("2024-03-01|Nice")).success
    (event,) = dagster.events(SOLD)
    assert event.metadata == {
        "state": dg.TextMetadataValue("not expected"),
        "why": dg.TextMetadataValue("unit 'Nice' is not open on 2024-03-01"),
        "rows": dg.IntMetadataValue(0),
    }
    assert not committed(dagster.project)


def test_replacing_tells_the_new_digest_and_the_file_was_never_away(
    root: Path, instance: dg.DagsterInstance
) -> None:
    before = a_project(root)
    fill(before)
    changed = Dagster(a_project(root, source=Shops(factor=2)), instance)
    key = a_key("2024-03-05|Paris")
    assert changed.ask([SOLD], key).success
    assert changed.ask([SOLD], key | {ON_COMMITTED_TAG: "replace"}).success
    kept, replaced = changed.events(SOLD)
    assert [state(kept), state(replaced)] == ["committed before", "committed"]
    assert kept.tags is not None
    assert replaced.tags is not None
    assert kept.tags["dagster/data_version"] != replaced.tags["dagster/data_version"]
    table = changed.project.store.read(SHOPS.partition("article/sold", DAY_5, "Paris"))
    assert table.column("value").to_pylist() == [1010, 1012]


def test_replacing_what_the_source_cannot_give_leaves_the_old_file(
    root: Path, instance: dg.DagsterInstance
) -> None:
    fill(a_project(root))
    broken = Dagster(a_project(root, source=Shops(factor=2, failing={DAY_5})), instance)
    tags = a_range("2024-03-04|Paris", "2024-03-05|Paris") | {ON_COMMITTED_TAG: "replace"}
    result = broken.ask([SOLD], tags)
    assert "(2024-03-05)" in failures(result)[0]
    assert "the till of 2024-03-05 is broken" in failures(result)[0]
    assert partitions(broken.events(SOLD)) == ["2024-03-04|Paris"]
    values = [
        broken.project.store.read(SHOPS.partition("article/sold", day, "Paris"))
        .column("value")
        .to_pylist()[0]
        for day in SHOPS.days(DAY_3, DAY_5)
    ]
    assert values == [505, 810, 305]
    assert broken.settled() is not None  # nothing became missing on the way


def test_a_failing_run_has_told_exactly_what_it_committed(
    root: Path, instance: dg.DagsterInstance
) -> None:
    dagster = Dagster(a_project(root, source=Shops(failing={DAY_3})), instance)
    result = dagster.ask([SOLD, REVENUE], ALL_DAYS)
    assert not result.success
    told = set(partitions(dagster.events(SOLD))) - {"2024-03-01|Nice"}
    assert told == set(keys(dagster))
    assert len(told) == 11


def test_a_run_that_is_terminated_has_told_what_it_committed_and_commits_nothing_afterwards(
    root: Path, instance: dg.DagsterInstance
) -> None:
    source = Shops(failing={DAY_1})  # so that each day is asked for by itself

    def terminate() -> None:
        if source.questions[-1][1] == (DAY_3,):
            instance.report_run_canceling(instance.get_runs()[0])
            raise DagsterExecutionInterruptedError  # what Terminate raises in a step

    source.on_read = terminate
    dagster = Dagster(a_project(root, source=source), instance)

    assert not dagster.ask([SOLD], ALL_DAYS).success

    (run,) = instance.get_runs()
    assert run.status is dg.DagsterRunStatus.CANCELED
    two_days = {f"2024-03-0{day}|{unit}" for day in (5, 4) for unit in ("Paris", "Lyon", "Nice")}
    assert set(keys(dagster)) == set(partitions(dagster.events(SOLD))) == two_days
    assert not dagster.project.store.is_alive("")


def test_a_value_that_no_file_can_carry_fails_its_partition_alone(
    root: Path, instance: dg.DagsterInstance
) -> None:
    class Infinite(Shops):
        def read(self, category, value_types, days, units):  # type: ignore[no-untyped-def]
            import pyarrow.compute as pc

            table = super().read(category, value_types, days, units)
            if "revenue" not in value_types:
                return table
            is_bad = pc.and_(
                pc.equal(table.column("date"), DAY_3), pc.equal(table.column("unit"), "Lyon")
            )
            values = pc.if_else(is_bad, float("inf"), table.column("revenue"))
            place = table.column_names.index("revenue")
            return table.set_column(place, "revenue", values)

    dagster = Dagster(a_project(root, source=Infinite()), instance)
    result = dagster.ask([SOLD, REVENUE], a_range("2024-03-01|Paris", "2024-03-05|Lyon"))
    assert "2024-03-03" in failures(result)[0]
    assert "infinite" in failures(result)[0]
    assert len(committed(dagster.project)) == 19
    assert dagster.project.store.read(SHOPS.partition("article/revenue", DAY_1, "Lyon")).num_rows


def test_an_open_day_is_refused_and_the_others_are_committed_and_told(dagster: Dagster) -> None:
    result = dagster.ask([SOLD], a_range("2024-03-05|Paris", "2024-03-06|Paris"))
    (message,) = failures(result)
    assert "shops/article/sold/2024-03-06/Paris is open" in message
    assert "its day closes at 2024-03-07T01:00:00+01:00" in message
    assert partitions(dagster.events(SOLD)) == ["2024-03-05|Paris"]


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ({}, "the run names no partition"),
        # The dialog's single run over missing ones: from its first one to its last one.
        (a_range("2024-03-02|Nice", "2024-03-05|Lyon"), "in the order Paris, Lyon, Nice"),
        (a_range("2024-03-05|Paris", "2024-03-02|Nice"), "it ends before it begins"),
    ],
)
def test_a_run_that_asks_for_nothing_fails_and_says_so(
    dagster: Dagster, tags: dict[str, str], why: str
) -> None:
    result = dagster.ask([SOLD], tags)
    (message,) = failures(result)
    assert why in message
    assert "nothing was done" in message


def test_a_choice_that_is_none_is_refused_in_a_sentence(dagster: Dagster) -> None:
    result = dagster.ask([SOLD], a_key("2024-03-05|Paris") | {ON_COMMITTED_TAG: "overwrite"})
    (message,) = failures(result)
    assert message.removeprefix("dagster._core.definitions.events.Failure: ").startswith(
        "tag backfill_assets/on_committed is 'overwrite'; give 'skip' or 'replace'"
    )
    assert len(committed(dagster.project)) == 0


def test_a_run_from_a_jobs_page_commits_its_whole_range_and_tells_it(dagster: Dagster) -> None:
    # Dagster gives such a run the first key of the whole backfill as well, which is not its own.
    misleading = {"dagster/partition/date": "2024-03-01", "dagster/partition/unit": "Paris"}
    result = dagster.repository.get_job("shops_partitions").execute_in_process(
        instance=dagster.instance,
        tags=a_range("2024-03-02|Lyon", "2024-03-05|Lyon") | misleading,
    )
    assert result.success
    lyon = [f"2024-03-0{day}|Lyon" for day in (5, 4, 3, 2)]
    assert list(keys(dagster)) == partitions(dagster.events(SOLD)) == lyon
    assert partitions(dagster.events(REVENUE)) == lyon


def test_one_asset_of_a_category_is_computed_without_the_others(dagster: Dagster) -> None:
    assert dagster.ask([REVENUE], a_key("2024-03-05|Paris")).success
    assert dagster.events(SOLD) == []
    assert len(committed(dagster.project)) == 1
