"""Instances of Dagster that find their database in the environment, in this process and others."""

import os
from pathlib import Path

import dagster as dg
from dagster._serdes import ConfigurableClassData

from backfill_assets.resources.instance_storage import BackfillInstanceStorage

URL_VARIABLE = "BACKFILL_TEST_DAGSTER_URL"

DAGSTER_YAML = """
telemetry: {enabled: false}
storage:
  custom:
    module: backfill_assets_tests.resources.instances
    class: StorageOfTests
    config: {}
run_coordinator:
  module: dagster._core.run_coordinator
  class: DefaultRunCoordinator
code_servers: {wait_for_local_processes_on_shutdown: true}
"""


def url_of_this_test() -> str:
    return os.environ[URL_VARIABLE]


class StorageOfTests(BackfillInstanceStorage):
    """Asks the environment, which processes started by a test inherit."""

    def __init__(
        self,
        *,
        should_autocreate_tables: bool = True,
        inst_data: ConfigurableClassData | None = None,
    ) -> None:
        super().__init__(
            should_autocreate_tables=should_autocreate_tables,
            inst_data=inst_data,
            address=url_of_this_test,
        )


def open_instance(home: Path) -> dg.DagsterInstance:
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text(DAGSTER_YAML)
    return dg.DagsterInstance.from_config(str(home))
