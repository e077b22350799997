"""The check that compares what the log database says with the files, and where others join in."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.defs.location import build_definitions
from backfill_assets.resources import log_agreement
from backfill_assets.resources.run_requests import coverage_job_name
from backfill_assets.stores.publishing_log import PublishingLog
from backfill_assets_tests.resources.small_project import NOW, SHOPS, a_project, fill

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.resources.project import Project

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")


def check(project: Project) -> Any:
    with dg.DagsterInstance.ephemeral() as instance:
        job = build_definitions(project).resolve_job_def(coverage_job_name(SHOPS))
        result = job.execute_in_process(instance=instance)
    found = {c.check_name: c for c in result.get_asset_check_evaluations()}
    return found["log_agrees_with_files"]


def test_a_failure_of_a_partition_whose_file_stands_is_told(database: str, root: Path) -> None:
    log = PublishingLog(lambda: database, lambda: NOW)
    project = replace(a_project(root), publishing_log=log)
    with closing(log.of_run("a run", project.store)) as claims:
        partition = SHOPS.parse("shops/article/sold/2024-03-05/Paris")
        wanted = PartitionSet.of(SHOPS, [partition])
        nothing = PartitionSet.empty(SHOPS)
        assert claims.take(wanted, again=nothing).granted == wanted
        claims.fail([partition], RuntimeError("the till is broken"))
    assert check(project).passed  # failed, and missing: they agree

    fill(project, days=[date(2024, 3, 5)])
    disagreeing = check(project)
    assert not disagreeing.passed
    assert disagreeing.description == "1 failed in the log, though the file stands"
    told = disagreeing.metadata[disagreeing.description.removeprefix("1 ")]
    assert told.value == f"* {partition}: the till is broken"


def test_whoever_keeps_rows_about_partitions_adds_what_it_finds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(_project: Project, catalogue: object) -> dict[str, list[str]]:
        assert catalogue is SHOPS
        return {"rows without a file": ["2024-03-05|Paris"]}

    monkeypatch.setattr(log_agreement, "FINDERS", (*log_agreement.FINDERS, find))
    assert check(a_project(root)).description == "1 rows without a file"
