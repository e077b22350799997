"""A data engineer's own habit: plain ``dagster dev``, after `up` has run once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backfill_assets.resources.settings import PROJECT
from backfill_assets_tests.recovery.running import SMALL_PARTITIONS
from backfill_assets_tests.recovery.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from backfill_assets_tests.recovery.running import Product

READ_BY_DAGSTER = ("dagster.yaml", "workspace.yaml", "pyproject.toml")
MADE_AGAIN_SECONDS = 240
STOP_SECONDS = 60


@contextmanager
def dagster_dev(product: Product, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``dagster dev`` in a folder that looks to it like the project.

    Not in the project itself: there Dagster would let a person's ``.env`` win.
    """
    folder.mkdir()
    for name in READ_BY_DAGSTER:
        shutil.copy(PROJECT / name, folder)
    with (product.home / "up.txt").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagster", "dev", "--port", str(product.port)],
            cwd=folder,
            env=product.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_plain_dagster_dev_comes_up_and_its_sensor_ticks(
    complete_product: Product, tmp_path: Path
) -> None:
    product = complete_product
    (product.store.root / "flights/carrier/departures/v1/2013-01-11/JFK.parquet").unlink()

    with dagster_dev(product, tmp_path / "project") as process:
        product.wait_until_it_answers()
        wait_for(
            "the deleted file",
            lambda: len(product.committed()) == SMALL_PARTITIONS,
            seconds=MADE_AGAIN_SECONDS,
            every=0.5,
        )
        wait_for(
            "the end of its run",
            lambda: all(run.is_finished for run in product.runs()),
            seconds=STOP_SECONDS,
            every=0.5,
        )
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(STOP_SECONDS) == 0
    wait_for("the end of all processes", product.is_gone, seconds=STOP_SECONDS, every=0.2)
