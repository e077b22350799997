"""A tick asks for what is missing by the files, newest first, and for nothing else."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from backfill_assets.core.catalogue import Category, Unit
from backfill_assets.core.cycles import Bounds
from backfill_assets.core.errors import StoreUnreadableError
from backfill_assets.core.partitions import ColumnType
from backfill_assets.resources import pace
from backfill_assets.resources import tick as tick_module
from backfill_assets.resources.run_requests import SENSOR_TAG, asset_key
from backfill_assets.resources.tick import Hints
from backfill_assets_tests.resources.dagster_of_tests import Dagster, a_key, a_range, failures
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_2,
    DAY_3,
    DAY_4,
    DAY_5,
    EXPECTED,
    NOW,
    REVENUE,
    SHOPS,
    SOLD,
    SOLD_BY_HOUR,
    Shops,
    a_catalogue,
    a_project,
    committed,
    fill,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets.resources.project import Project

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

NOTHING_MISSING = (
    "Nothing is missing: 46 of 46 expected partitions are committed, up to 2024-03-05."
)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance without anything in it, in memory."""
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.fixture
def dagster(root: Path, instance: dg.DagsterInstance) -> Dagster:
    return Dagster(a_project(root), instance)


def told(requests: Any) -> list[str]:
    return [request.tags[SENSOR_TAG] for request in requests or ()]


def files(project: Project) -> dict[str, bytes]:
    found = {str(p): Path(project.store.location(p)).read_bytes() for p in committed(project)}
    return dict(sorted(found.items()))


def source_of(dagster: Dagster) -> Shops:
    source = dagster.project.data_sets[0].source
    assert isinstance(source, Shops)
    return source


class TestOrder:
    def test_the_first_tick_asks_for_just_the_newest_day_of_both_grids(
        self, dagster: Dagster
    ) -> None:
        requests = dagster.asks()
        assert told(requests) == [
            "6 partitions: article; all units; 2024-03-05",
            "6 partitions: hour; all units; 2024-03-05",
        ]
        assert [request.job_name for request in requests] == [
            "shops_partitions",
            "shops_partitions_from_2024_03_03",
        ]
        assert {request.tags["dagster/priority"] for request in requests} == {"10"}
        assert {request.run_key for request in requests} == {None}

    def test_the_second_tick_asks_for_history_behind_people(self, dagster: Dagster) -> None:
        dagster.tick_and_run()
        requests = dagster.asks()
        assert told(requests) == [
            "22 partitions: article; all units; 2024-03-04 back to 2024-03-01",
            "12 partitions: hour; all units; 2024-03-04 back to 2024-03-03",
        ]
        assert {request.tags["dagster/priority"] for request in requests} == {"-10"}

    def test_history_is_asked_for_within_the_bounds_and_the_runs_in_flight(
        self, root: Path, instance: dg.DagsterInstance
    ) -> None:
        project = a_project(root, bounds=Bounds(max_days=1), runs_in_flight=3)
        dagster = Dagster(project, instance)
        dagster.tick_and_run()
        assert told(dagster.asks()) == [
            "6 partitions: article; all units; 2024-03-04",
            "6 partitions: hour; all units; 2024-03-04",
            "6 partitions: article; all units; 2024-03-03",
        ]

    def test_ticks_end_in_a_complete_store_and_no_day_is_computed_twice(
        self, root: Path, instance: dg.DagsterInstance, tmp_path: Path
    ) -> None:
        source = Shops()
        bounded = Dagster(
            a_project(root, source=source, bounds=Bounds(max_days=2, max_partitions=7)), instance
        )
        bounded.complete()
        asked = [(category, day) for category, days in source.questions for day in days]
        assert len(asked) == len(set(asked)) == 5 + 3
        assert len(committed(bounded.project)) == EXPECTED

        with dg.DagsterInstance.ephemeral() as another:
            unbounded = Dagster(a_project(tmp_path / "unbounded"), another)
            unbounded.complete()
        assert files(bounded.project) == files(unbounded.project)

    def test_a_newly_closed_day_goes_first_while_history_is_still_missing(
        self, root: Path, instance: dg.DagsterInstance
    ) -> None:
        dagster = Dagster(a_project(root, bounds=Bounds(max_days=1)), instance)
        dagster.tick_and_run()
        dagster.tick_and_run()
        tomorrow = Dagster(
            a_project(root, bounds=Bounds(max_days=1), now=NOW + timedelta(days=1)), instance
        )
        tomorrow.cursor = dagster.cursor
        assert told(tomorrow.asks()) == [
            "6 partitions: article; all units; 2024-03-06",
            "6 partitions: hour; all units; 2024-03-06",
        ]

    def test_a_newest_day_that_keeps_failing_does_not_starve_history(
        self, root: Path, instance: dg.DagsterInstance
    ) -> None:
        dagster = Dagster(a_project(root, source=Shops(failing={DAY_5})), instance)
        for _ in range(3):
            dagster.tick_and_run()
        assert committed(dagster.project).days() == [DAY_4, DAY_3, DAY_2, DAY_1]
        assert len(committed(dagster.project)) == EXPECTED - 12

    def test_a_failing_day_of_history_does_not_starve_older_ones(
        self, root: Path, instance: dg.DagsterInstance
    ) -> None:
        dagster = Dagster(a_project(root, source=Shops(failing={DAY_4})), instance)
        for _ in range(2):
            dagster.tick_and_run()
        assert len(committed(dagster.project)) == EXPECTED - 12
        assert DAY_4 not in committed(dagster.project).days()


class TestInFlight:
    @pytest.mark.parametrize(
        "status",
        [
            dg.DagsterRunStatus.QUEUED,
            dg.DagsterRunStatus.NOT_STARTED,
            dg.DagsterRunStatus.STARTING,
            dg.DagsterRunStatus.STARTED,
            dg.DagsterRunStatus.CANCELING,
        ],
    )
    def test_what_an_unfinished_run_takes_up_is_not_asked_for_again(
        self, dagster: Dagster, status: dg.DagsterRunStatus
    ) -> None:
        dagster.unfinished(status, [SOLD, REVENUE], a_range("2024-03-05|Paris", "2024-03-05|Nice"))
        assert told(dagster.asks()) == ["6 partitions: hour; all units; 2024-03-05"]

    @pytest.mark.parametrize("status", [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE])
    def test_what_a_finished_run_left_missing_is_asked_for_again(
        self, dagster: Dagster, status: dg.DagsterRunStatus
    ) -> None:
        dagster.unfinished(status, [SOLD, REVENUE], a_range("2024-03-05|Paris", "2024-03-05|Nice"))
        assert len(dagster.asks()) == 2

    def test_a_single_key_that_a_person_launched_is_left_out_and_nothing_else_is(
        self, dagster: Dagster
    ) -> None:
        dagster.unfinished(dg.DagsterRunStatus.STARTED, [SOLD], a_key("2024-03-05|Lyon"))
        requests = dagster.asks()
        assert told(requests) == [
            "3 partitions: article; all units; 2024-03-05",
            "1 partitions: article; Paris; 2024-03-05",
            "1 partitions: article; Nice; 2024-03-05",
            "6 partitions: hour; all units; 2024-03-05",
        ]

    def test_a_backfill_from_a_jobs_page_is_subtracted_by_its_range(self, dagster: Dagster) -> None:
        misleading = {"dagster/partition/date": "2024-03-01", "dagster/partition/unit": "Paris"}
        dagster.tick_and_run()
        dagster.unfinished(
            dg.DagsterRunStatus.QUEUED,
            [SOLD, REVENUE],
            a_range("2024-03-01|Paris", "2024-03-04|Nice") | misleading,
            job="shops_partitions",
        )
        assert told(dagster.asks()) == [
            "12 partitions: hour; all units; 2024-03-04 back to 2024-03-03"
        ]

    def test_runs_of_other_assets_are_none_of_our_business(self, dagster: Dagster) -> None:
        @dg.asset
        def other_asset() -> None: ...

        defs = dg.Definitions(
            assets=[other_asset],
            jobs=[dg.define_asset_job("other", selection=dg.AssetSelection.assets(other_asset))],
        )
        dagster.instance.create_run_for_job(
            defs.resolve_job_def("other"),
            tags=a_key("2024-03-05|Paris"),
            status=dg.DagsterRunStatus.STARTED,
        )
        assert len(dagster.asks()) == 2

    def test_the_queue_never_holds_more_history_than_runs_in_flight(
        self, root: Path, instance: dg.DagsterInstance
    ) -> None:
        project = a_project(root, bounds=Bounds(max_days=1), runs_in_flight=2)
        dagster = Dagster(project, instance)
        dagster.tick_and_run()
        for _ in range(6):
            self.queue_up(dagster)
        assert instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])) == 2

    def test_nor_more_of_the_newest_day_than_one_tick_can_submit(
        self, root: Path, instance: dg.DagsterInstance
    ) -> None:
        many = a_catalogue(units=[Unit(f"shop {n}") for n in range(10)])
        project = a_project(root, catalogue=many, bounds=Bounds(max_partitions=1))
        dagster = Dagster(project, instance)
        asked = [len(self.queue_up(dagster)) for _ in range(3)]
        assert asked == [20, 0, 0]
        assert dagster.settled() == (
            "140 missing partitions wait for a place; 20 missing partitions are in 20 unfinished "
            "runs."
        )

    def queue_up(self, dagster: Dagster) -> list[dg.RunRequest]:
        requests = dagster.asks()
        for request in requests:
            dagster.unfinished(
                dg.DagsterRunStatus.QUEUED,
                [q for q in SHOPS.queries if asset_key(q) in request.asset_selection],
                dict(request.tags),
                job=request.job_name,
            )
        return requests

    def test_two_ticks_at_once_ask_twice_and_no_harm_is_done(
        self, root: Path, instance: dg.DagsterInstance
    ) -> None:
        source = Shops()
        dagster = Dagster(a_project(root, source=source), instance)
        first = dagster.asks()
        dagster.cursor = None
        second = dagster.asks()
        assert told(first) == told(second)

        # The second run comes and goes while the first one waits for the source.
        waiting = iter([second[0]])

        def overtake() -> None:
            for request in waiting:
                assert dagster.execute(request).success

        source.on_read = overtake
        assert dagster.execute(first[0]).success
        assert source.questions == [("article", (DAY_5,)), ("article", (DAY_5,))]
        assert len(committed(dagster.project)) == 6
        for partition in committed(dagster.project):
            dagster.project.store.verify(partition)
        assert dagster.complete()
        assert len(committed(dagster.project)) == EXPECTED


class TestSkipReasons:
    def test_when_nothing_is_missing(self, dagster: Dagster) -> None:
        fill(dagster.project)
        assert dagster.settled() == NOTHING_MISSING

    def test_when_what_is_missing_is_in_flight(self, dagster: Dagster) -> None:
        fill(dagster.project)
        Path(dagster.project.store.location(next(iter(committed(dagster.project))))).unlink()
        dagster.unfinished(dg.DagsterRunStatus.QUEUED, [SOLD], a_key("2024-03-05|Paris"))
        assert dagster.settled() == "1 missing partitions are in 1 unfinished runs."

    def test_when_no_place_is_free(self, root: Path, instance: dg.DagsterInstance) -> None:
        dagster = Dagster(a_project(root, bounds=Bounds(max_days=1), runs_in_flight=1), instance)
        dagster.tick_and_run()
        (request,) = dagster.asks()
        dagster.unfinished(
            dg.DagsterRunStatus.QUEUED, [SOLD, REVENUE], dict(request.tags), job=request.job_name
        )
        assert dagster.settled() == (
            "28 missing partitions wait for a place; 6 missing partitions are in 1 unfinished runs."
        )

    def test_before_the_first_day_has_closed(
        self, root: Path, instance: dg.DagsterInstance
    ) -> None:
        early = datetime(2024, 3, 1, 23, 59, tzinfo=UTC)
        message = Dagster(a_project(root, now=early), instance).settled()
        assert message is not None
        assert message.startswith("No day of shops has closed yet; the first one closes at 2024-03")

    def test_before_a_unit_opens(self, root: Path, instance: dg.DagsterInstance) -> None:
        catalogue = a_catalogue(units=[Unit("Paris", first_day=date(2024, 6, 1))])
        assert Dagster(a_project(root, catalogue=catalogue), instance).settled() == (
            "Nothing of shops is expected up to 2024-03-05, the latest closed day: no unit is open "
            "on a day on which a query has begun."
        )

    def test_what_is_stale_and_made_again_is_not_counted_as_missing(self, dagster: Dagster) -> None:
        fill(dagster.project)
        lost, wished = (SHOPS.partition("article/sold", DAY_5, u) for u in ("Paris", "Nice"))
        dagster.project.store.ask_to_restate([wished])
        Path(dagster.project.store.location(lost)).unlink()
        dagster.unfinished(
            dg.DagsterRunStatus.QUEUED, [SOLD], a_range("2024-03-05|Paris", "2024-03-05|Nice")
        )
        assert dagster.settled() == "1 missing partitions are in 1 unfinished runs."

    def test_what_is_held_is_counted(self, dagster: Dagster) -> None:
        fill(dagster.project)
        dagster.project.store.hold([SHOPS.partition("article/sold", DAY_5, "Paris")], "recount")
        assert dagster.settled() == (
            "Nothing is missing: 45 of 46 expected partitions are committed, up to 2024-03-05. "
            "1 are held."
        )


class TestCursor:
    @pytest.mark.parametrize(
        "cursor", [None, "", "{", "null", "[]", '{"newest_day": 3}', '{"day": "2024-03-05"}', "¿"]
    )
    def test_a_lost_or_damaged_cursor_changes_no_request(
        self, dagster: Dagster, cursor: str | None
    ) -> None:
        fill(dagster.project, days=[DAY_5])
        dagster.cursor = cursor
        assert told(dagster.asks()) == [
            "22 partitions: article; all units; 2024-03-04 back to 2024-03-01",
            "12 partitions: hour; all units; 2024-03-04 back to 2024-03-03",
        ]
        fill(dagster.project)
        dagster.cursor = cursor
        assert dagster.settled() == NOTHING_MISSING

    def test_a_cursor_is_two_hints(self) -> None:
        assert Hints.parse('{"newest_day": "2024-03-05", "reported": "x"}') == Hints(
            "2024-03-05", "x"
        )
        assert Hints.parse("{") == Hints("", "")

    def test_a_cursor_from_the_future_hides_nothing(self, dagster: Dagster) -> None:
        dagster.cursor = '{"newest_day": "2099-01-01", "reported": "all of it"}'
        dagster.complete()
        assert len(committed(dagster.project)) == EXPECTED


class TestRests:
    def test_after_a_long_look_that_found_nothing_the_sensor_rests(
        self, dagster: Dagster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pace, "LONG_LOOK_SECONDS", 0.0)
        monkeypatch.setattr(pace, "RESTS", 1e9)
        fill(dagster.project)
        # On the way all is reported and the coverage is looked at: no rest comes between.
        assert dagster.settled() == NOTHING_MISSING
        cursor = dagster.cursor
        message = dagster.tick().skip_message
        assert message is not None
        assert message.startswith("All stood when it was looked at, and looking took long;")
        assert dagster.cursor == cursor

    def test_it_does_not_rest_while_something_is_still_to_be_reported(
        self, dagster: Dagster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pace, "LONG_LOOK_SECONDS", 0.0)
        monkeypatch.setattr(pace, "RESTS", 1e9)
        monkeypatch.setattr(tick_module, "REPORT_SLICE", 5)
        fill(dagster.project)
        messages = [dagster.tick().skip_message for _ in range(EXPECTED // 5)]
        assert messages == [NOTHING_MISSING] * len(messages)


class TestDifferences:
    """Of a store that was complete, only the difference is asked for."""

    @pytest.fixture
    def complete(self, dagster: Dagster) -> Dagster:
        fill(dagster.project)
        return dagster

    def again(self, dagster: Dagster, **changes: Any) -> Dagster:
        """Return the project under another catalogue, on the same files and the same instance."""
        root = dagster.project.store.root  # type: ignore[attr-defined]
        other = Dagster(a_project(root, catalogue=a_catalogue(**changes)), dagster.instance)
        other.cursor = dagster.cursor
        return other

    def test_a_deleted_file_is_asked_for_alone(self, complete: Dagster) -> None:
        before = files(complete.project)
        gone = SHOPS.partition("hour/sold", DAY_4, "Lyon")
        Path(complete.project.store.location(gone)).unlink()
        (request,) = complete.tick_and_run()
        assert request.tags[SENSOR_TAG] == "1 partitions: hour; all units; 2024-03-04"
        assert request.asset_selection == [asset_key(SOLD_BY_HOUR)]
        assert source_of(complete).questions == [("hour", (DAY_4,))]
        assert files(complete.project) == before

    def test_deleted_days_are_asked_for_alone(self, complete: Dagster) -> None:
        before = files(complete.project)
        for query in (SOLD, REVENUE):
            for day in (DAY_5, DAY_1):
                place = complete.project.store.location(SHOPS.partition(query.name, day, "Paris"))
                shutil.rmtree(Path(place).parent)
        complete.complete()
        assert source_of(complete).days_asked == {DAY_5, DAY_1}
        assert files(complete.project) == before

    def test_a_new_category_is_asked_for_alone(self, complete: Dagster) -> None:
        changed = self.again(
            complete,
            categories=[
                Category("till"),
                Category("article"),
                Category("hour", ColumnType.INT64, first_day=DAY_3),
            ],
        )
        changed.complete()
        assert {category for category, _ in source_of(changed).questions} == {"till"}
        assert len(committed(changed.project)) == EXPECTED + 28

    def test_a_new_unit_is_asked_for_alone_wherever_it_stands_in_the_catalogue(
        self, complete: Dagster
    ) -> None:
        units = [Unit("Lille"), Unit("Paris"), Unit("Lyon"), Unit("Nice", first_day=DAY_1)]
        before = files(complete.project)
        changed = self.again(complete, units=units)
        changed.complete()
        new = files(changed.project).keys() - before.keys()
        assert {name.rpartition("/")[2] for name in new} == {"Lille", "Nice"}
        assert len(new) == (5 * 2 + 3 * 2) + 2  # Lille everywhere, and the first day of Nice
        assert before.items() <= files(changed.project).items()

    def test_a_new_version_is_built_again_and_the_old_files_stay(self, complete: Dagster) -> None:
        old = Path(complete.project.store.location(SHOPS.partition("hour/sold", DAY_5, "Paris")))
        changed = self.again(complete, versions={"hour/sold": 2})
        asked = changed.complete()
        assert told(asked) == [
            "3 partitions: hour; all units; 2024-03-05",
            "6 partitions: hour; all units; 2024-03-04 back to 2024-03-03",
        ]
        assert old.exists()

    def test_a_removed_unit_asks_for_nothing_and_its_files_stay(self, complete: Dagster) -> None:
        before = files(complete.project)
        changed = self.again(complete, units=[Unit("Paris"), Unit("Nice", first_day=DAY_1)])
        changed.complete()
        assert {day for _, days in source_of(changed).questions for day in days} == {DAY_1}
        back = self.again(changed)
        assert back.settled() == NOTHING_MISSING
        assert files(back.project).items() >= before.items()

    def test_what_was_asked_for_under_an_older_catalogue_fails_by_name_and_the_rest_goes_on(
        self, dagster: Dagster
    ) -> None:
        queued = dagster.asks()
        changed = self.again(dagster, units=[Unit("Paris"), Unit("Lyon")])

        results = [changed.execute(request) for request in queued]
        assert {result.success for result in results} == {False}
        (message,) = failures(results[0])
        assert "unit 'Nice': shops has Paris, Lyon. The run was asked for under another" in message
        assert not committed(changed.project)

        changed.complete()
        assert changed.settled() == (
            "Nothing is missing: 32 of 32 expected partitions are committed, up to 2024-03-05."
        )

    def test_a_released_partition_is_asked_for_again(self, complete: Dagster) -> None:
        partition = SHOPS.partition("article/sold", DAY_5, "Paris")
        complete.project.store.hold([partition], "recount")
        assert complete.asks() == []
        complete.project.store.release([partition])
        assert told(complete.tick_and_run()) == ["1 partitions: article; all units; 2024-03-05"]
        assert complete.settled() == NOTHING_MISSING


class TestUnreadableStore:
    def test_a_store_that_lost_its_identity_fails_the_tick_and_launches_nothing(
        self, dagster: Dagster, root: Path
    ) -> None:
        fill(dagster.project)
        (root / ".backfill-store.json").unlink()
        with pytest.raises(StoreUnreadableError, match="is not a store, or is not mounted"):
            dagster.tick()

        restarted = Dagster(a_project(root), dagster.instance)
        with pytest.raises(StoreUnreadableError):
            restarted.tick()
        assert not (root / ".backfill-store.json").exists()

    def test_a_folder_that_is_no_folder_fails_the_tick_and_launches_nothing(
        self, dagster: Dagster, root: Path
    ) -> None:
        fill(dagster.project)
        shutil.rmtree(root)
        root.write_text("not a folder any more")
        with pytest.raises(StoreUnreadableError):
            dagster.tick()


class TestReporting:
    """What stands committed and was never reported is told, in slices; nothing is launched."""

    @pytest.fixture
    def untold(self, dagster: Dagster) -> Dagster:
        """A complete store, and a Dagster whose database was thrown away."""
        fill(dagster.project)
        return dagster

    def test_a_new_event_log_is_told_everything_and_nothing_is_launched(
        self, untold: Dagster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tick_module, "REPORT_SLICE", 20)
        counts = []
        for _ in range(4):
            assert untold.asks() == []
            counts.append(len(untold.materialized(*SHOPS.queries)))
        assert counts == [20, 40, 46, 46]
        assert source_of(untold).questions == []
        assert untold.materialized(*SHOPS.queries) == {
            f"{p.query.name}/{p.key}" for p in committed(untold.project)
        }
        assert untold.settled() == NOTHING_MISSING

    def test_the_newest_days_of_all_assets_are_told_first(
        self, untold: Dagster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tick_module, "REPORT_SLICE", 12)
        untold.tick()
        told_first = untold.materialized(*SHOPS.queries)
        assert len(told_first) == 12
        assert {key.split("/")[2].split("|")[0] for key in told_first} == {"2024-03-05"}

    def test_an_event_tells_rows_and_digest_of_the_file(self, untold: Dagster) -> None:
        untold.tick()
        event = next(e for e in untold.events(SOLD) if e.partition == "2024-03-05|Paris")
        record = untold.project.store.verify(SHOPS.partition("article/sold", DAY_5, "Paris"))
        assert event.metadata["rows"].value == 2
        assert event.tags is not None
        assert event.tags["dagster/data_version"] == record.digest
        assert event.tags["dagster/code_version"] == "1"

    def test_a_wiped_asset_is_told_again_and_nothing_is_launched(self, untold: Dagster) -> None:
        assert untold.settled() == NOTHING_MISSING
        untold.instance.wipe_assets([asset_key(SOLD)])
        assert untold.materialized(SOLD) == set()
        assert untold.settled() == NOTHING_MISSING
        assert len(untold.materialized(SOLD)) == 14
        assert len(untold.events(SOLD)) == 14

    def test_a_file_that_somebody_put_back_is_told(self, dagster: Dagster) -> None:
        partition = SHOPS.partition("hour/sold", DAY_5, "Nice")
        place = Path(dagster.project.store.location(partition))
        fill(dagster.project)
        content = place.read_bytes()
        place.unlink()
        dagster.tick()
        assert "hour/sold/2024-03-05|Nice" not in dagster.materialized(SOLD_BY_HOUR)
        place.write_bytes(content)
        dagster.tick()
        assert "hour/sold/2024-03-05|Nice" in dagster.materialized(SOLD_BY_HOUR)

    def test_nothing_is_told_twice_also_when_the_cursor_is_lost(self, untold: Dagster) -> None:
        for _ in range(3):
            untold.tick()
            untold.cursor = None
        assert {len(untold.events(q)) for q in (SOLD, REVENUE)} == {14}

    def test_a_damaged_file_keeps_nothing_else_from_being_told_or_launched(
        self, untold: Dagster
    ) -> None:
        store = untold.project.store
        damaged = SHOPS.partition("article/sold", DAY_5, "Paris")
        Path(store.location(damaged)).write_bytes(b"")
        Path(store.location(SHOPS.partition("hour/sold", DAY_4, "Lyon"))).unlink()
        assert told(untold.tick_and_run()) == ["1 partitions: hour; all units; 2024-03-04"]
        assert untold.settled() == NOTHING_MISSING
        assert len(untold.materialized(*SHOPS.queries)) == 45
        assert "article/sold/2024-03-05|Paris" not in untold.materialized(SOLD)
