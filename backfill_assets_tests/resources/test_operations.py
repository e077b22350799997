"""What a person does to partitions: hold, release and restate, through every tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from backfill_assets.core.errors import SettingsError, UnknownPartitionError
from backfill_assets.resources import operations

from .dagster_of_tests import Dagster, a_key, failures
from .small_project import DAY_3, DAY_5, EXPECTED, SHOPS, SOLD, Shops, a_project, committed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from backfill_assets.core.plan import Plan

A_DAY = "shops/article/sold/2024-03-03/*"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def dagster(root: Path, instance: dg.DagsterInstance) -> Dagster:
    """Return the shops, complete."""
    dagster = Dagster(a_project(root, source=Shops()), instance)
    dagster.complete()
    return dagster


def plan_of(dagster: Dagster) -> Plan:
    return dagster.project.plan(SHOPS)


def launch(dagster: Dagster, job: str, **config: str) -> dg.ExecuteInProcessResult:
    """Launch a job from its launchpad."""
    op = job.partition("_")[0]
    return dagster.repository.get_job(job).execute_in_process(
        run_config={"ops": {op: {"config": config}}},
        instance=dagster.instance,
        raise_on_error=False,
    )


def source_of(dagster: Dagster) -> Any:
    return dagster.project.data_sets[0].source


class TestHolds:
    def test_what_is_held_is_withdrawn_stays_away_and_comes_back_when_it_is_released(
        self, dagster: Dagster
    ) -> None:
        held = operations.hold(dagster.project, A_DAY, "the till was broken")

        assert str(held) == "3 partitions"
        assert len(committed(dagster.project)) == EXPECTED - 3
        assert dagster.complete() == []
        assert {p.day for p in plan_of(dagster).held} == {DAY_3}
        partition = SHOPS.partition("article/sold", DAY_3, "Lyon")
        assert dagster.project.store.hold_reason(partition) == "the till was broken"

        released = operations.release(dagster.project, A_DAY)

        assert str(released) == "3 partitions"
        source_of(dagster).questions.clear()
        dagster.complete()
        assert source_of(dagster).questions == [("article", (DAY_3,))]
        assert len(committed(dagster.project)) == EXPECTED

    def test_a_day_that_will_never_come_is_held_before_it_was_ever_committed(
        self, root: Path, instance: dg.DagsterInstance
    ) -> None:
        dagster = Dagster(a_project(root, source=Shops(failing={DAY_5})), instance)
        operations.hold(dagster.project, "shops/*/*/2024-03-05/*", "the shops were closed")

        dagster.complete()

        assert DAY_5 not in source_of(dagster).days_asked
        assert len(committed(dagster.project)) == EXPECTED - 12

    def test_doing_it_again_changes_nothing_and_says_so(self, dagster: Dagster) -> None:
        operations.hold(dagster.project, "shops/article/sold/2024-03-03/Lyon", "first")

        again = operations.hold(dagster.project, A_DAY, "second")

        assert str(again) == "2 partitions, 1 were so before"
        partition = SHOPS.partition("article/sold", DAY_3, "Lyon")
        assert dagster.project.store.hold_reason(partition) == "first"
        nothing = operations.release(dagster.project, "shops/article/revenue/2024-03-03/*")
        assert str(nothing) == "0 partitions, 3 were so before"

    def test_a_hold_without_a_reason_is_refused(self, dagster: Dagster) -> None:
        with pytest.raises(SettingsError, match="a hold needs a reason"):
            operations.hold(dagster.project, A_DAY, " ")

        assert not plan_of(dagster).held

    @pytest.mark.parametrize(
        ("selection", "found"),
        [
            ("shops/article/sold/2024-03-06/*", "names no partition that is expected and closed"),
            ("shops/article/sold/2024-03-01/Nice", "names no partition that is expected"),
            ("stores/article/sold/2024-03-03/*", "there is shops"),
            ("shops", "expected catalogue/category"),
        ],
    )
    def test_what_names_nothing_is_refused_and_changes_nothing(
        self, dagster: Dagster, selection: str, found: str
    ) -> None:
        for operation in (
            lambda: operations.hold(dagster.project, selection, "why"),
            lambda: operations.release(dagster.project, selection),
            lambda: operations.restate(dagster.project, selection),
        ):
            with pytest.raises(UnknownPartitionError, match=found):
                operation()

        assert len(plan_of(dagster).committed) == EXPECTED


class TestJobs:
    def test_the_jobs_do_what_the_commands_do(self, dagster: Dagster) -> None:
        assert launch(dagster, "hold_partitions", partitions=A_DAY, reason="why").success
        assert len(plan_of(dagster).held) == 3
        assert launch(dagster, "release_partitions", partitions=A_DAY).success
        assert not plan_of(dagster).held
        dagster.complete()
        assert launch(dagster, "restate_partitions", partitions=A_DAY).success
        assert len(plan_of(dagster).restating) == 3

    def test_a_form_that_was_not_filled_in_fails_in_a_sentence(self, dagster: Dagster) -> None:
        job = dagster.repository.get_job("hold_partitions")

        result = job.execute_in_process(instance=dagster.instance, raise_on_error=False)

        assert not result.success
        (told,) = failures(result)
        form = "CATALOGUE/CATEGORY/VALUE_TYPE/DAYS/UNITS"
        assert f".Failure: selection '{form}': expected catalogue/category" in told
        assert len(plan_of(dagster).committed) == EXPECTED

    def test_a_person_who_launches_what_is_held_is_refused_with_its_state(
        self, dagster: Dagster
    ) -> None:
        operations.hold(dagster.project, A_DAY, "the till was broken")

        result = dagster.ask([SOLD], a_key("2024-03-03|Lyon"))

        assert not result.success
        assert "held" in failures(result)[0]
