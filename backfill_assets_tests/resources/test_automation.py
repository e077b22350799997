"""What Dagster's own automation downstream sees of partitions that are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from backfill_assets.defs.location import build_definitions
from backfill_assets.defs.partitions import partitions_definition
from backfill_assets.resources.run_requests import asset_key

from .dagster_of_tests import Dagster, a_key
from .small_project import DAY_5, SHOPS, SOLD, Shops, a_project, committed, fill

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.resources.project import Project

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

REPORT = dg.AssetKey("report")


def with_a_report(project: Project) -> dg.Definitions:
    """Return the project's definitions and an asset that is made when what it reads is updated."""

    @dg.asset(
        key=REPORT,
        deps=[asset_key(SOLD)],
        partitions_def=partitions_definition(SHOPS, SHOPS.grids[0]),
        automation_condition=dg.AutomationCondition.any_deps_updated(),
    )
    def report() -> None: ...

    return dg.Definitions.merge(build_definitions(project), dg.Definitions(assets=[report]))


def asked_for(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    cursor: Any = None,
) -> tuple[set[str], Any]:
    """Evaluate the conditions; return the partitions of the report that they ask for."""
    found = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)
    return set(found.get_requested_partitions(REPORT)), found.cursor


def test_automation_sees_what_a_run_commits_and_what_is_told_after_the_fact(root: Path) -> None:
    project = a_project(root, source=Shops())
    definitions = with_a_report(project)
    with dg.DagsterInstance.ephemeral() as instance:
        dagster = Dagster(project, instance)
        nothing, cursor = asked_for(definitions, instance)

        dagster.ask([SOLD], a_key("2024-03-03|Lyon"))
        of_a_run, cursor = asked_for(definitions, instance, cursor)

        fill(project, days=[DAY_5])  # as if by another program: no run says so
        unseen, cursor = asked_for(definitions, instance, cursor)
        dagster.tick()
        of_the_sensor, _ = asked_for(definitions, instance, cursor)

    assert nothing == set()
    assert of_a_run == {"2024-03-03|Lyon"}
    assert unseen == set()
    assert of_the_sensor == {f"2024-03-05|{unit}" for unit in ("Paris", "Lyon", "Nice")}
    assert len(committed(project)) == 13
