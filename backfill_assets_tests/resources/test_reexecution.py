"""Re-executing a run from its failure: what the earlier run committed is found by its key."""

import os
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest

from backfill_assets.defs.assets import IO_MANAGER, partition_assets
from backfill_assets.defs.partitions import partitions_definition
from backfill_assets.resources.partition_io_manager import partition_io_manager
from backfill_assets.resources.run_requests import asset_key
from backfill_assets_tests.resources.dagster_of_tests import a_key
from backfill_assets_tests.resources.small_project import SHOPS, SOLD, a_project, committed

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

ROOT_VARIABLE = "BACKFILL_TEST_STORE"


def two_steps() -> dg.JobDefinition:
    """Return a job over a store that the environment names; its second step may fail."""
    project = a_project(Path(os.environ[ROOT_VARIABLE]))

    @dg.asset(
        ins={"sold": dg.AssetIn(asset_key(SOLD))},
        partitions_def=partitions_definition(SHOPS, SHOPS.grids[0]),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def report(sold: pd.DataFrame) -> dg.MaterializeResult[None]:
        if (project.store.root.parent / "broken").exists():  # type: ignore[attr-defined]
            message = "the printer is out of paper"
            raise RuntimeError(message)
        return dg.MaterializeResult(metadata={"total": int(sold["value"].sum())})

    return dg.Definitions(
        assets=[*partition_assets(project), report],
        jobs=[dg.define_asset_job("both", [asset_key(SOLD), dg.AssetKey("report")])],
        resources={IO_MANAGER: partition_io_manager(project)},
        executor=dg.in_process_executor,
    ).resolve_job_def("both")


def test_a_step_that_failed_is_done_again_with_what_the_first_run_committed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    project = a_project(root)
    broken = root.parent / "broken"
    broken.touch()
    job = dg.reconstructable(two_steps)
    tags = a_key("2024-03-03|Lyon")
    with dg.DagsterInstance.local_temp() as instance:
        with dg.execute_job(job, instance, tags=tags) as first:
            assert not first.success
        stood = [p.key for p in committed(project)]
        broken.unlink()

        again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
        with dg.execute_job(job, instance, tags=tags, reexecution_options=again) as second:
            assert second.success
            steps = {event.step_key for event in second.all_events if event.is_step_success}

    assert stood == ["2024-03-03|Lyon"]
    assert steps == {"report"}
