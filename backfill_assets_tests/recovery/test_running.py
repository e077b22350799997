"""A complete project runs; things are done to it, and it makes itself complete again."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.recovery.running import ERROR, Role, kill
from backfill_assets_tests.recovery.undisturbed import files_of
from backfill_assets_tests.recovery.waiting import wait_for
from backfill_assets_tests.recovery.watcher import stamps

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets_tests.recovery.running import Product

FILE = "flights/carrier/departures/v1/2013-01-11/JFK.parquet"
MADE_AGAIN_SECONDS = 180
COMES_BACK_SECONDS = 60


def delete_some(root: Path) -> set[str]:
    """Delete single files, a day of one query, and a day of all; return what was deleted."""
    before = {path for path, _ in stamps(root)}
    (root / FILE).unlink()
    (root / "flights/hour/arrival_delay/v1/2013-01-02/EWR.parquet").unlink()
    shutil.rmtree(root / "flights/destination/cancellations/v1/2013-01-07")
    for folder in root.glob("flights/*/*/v1/2013-01-04"):
        shutil.rmtree(folder)
    return before - {path for path, _ in stamps(root)}


def test_just_the_deleted_files_are_made_again(
    running_product: Product, year: dict[str, bytes]
) -> None:
    root = running_product.store.root
    before = dict(stamps(root))

    deleted = delete_some(root)
    wait_for("the files", running_product.is_complete, seconds=MADE_AGAIN_SECONDS, every=0.5)

    assert len(deleted) == 1 + 1 + 3 + 2 * 12
    after = dict(stamps(root))
    assert {path for path in after if after[path] != before[path]} == deleted
    found = files_of(root)
    assert all(found[path] == year[path] for path in after)
    # The checks look at everything: once after the work, and not in each run of it.
    assert {run.asset_check_selection for run in running_product.runs()} == {frozenset()}


def test_a_home_that_is_up_is_not_started_again(running_product: Product) -> None:
    refused = running_product.run("up", "--port", str(running_product.port))

    assert refused.returncode == ERROR
    assert refused.stderr == (
        f"SettingsError: {running_product.home} is up already, in another terminal; stop it there\n"
    )


@pytest.mark.parametrize(
    "role", [Role.CODE_SERVER, Role.DAEMON, Role.WEBSERVER, Role.POSTMASTER, Role.KEEPER]
)
def test_work_is_done_after_a_process_was_killed(running_product: Product, role: Role) -> None:
    before = running_product.processes()[role]
    # Each of several, by itself: a parent may live on without the child that does its work.
    for victim in before:
        kill(victim)
        (running_product.store.root / FILE).unlink()
        wait_for(
            f"work after {role} {victim.pid} was killed",
            running_product.is_complete,
            seconds=MADE_AGAIN_SECONDS,
            every=0.5,
        )
        wait_for(
            f"{role} again",
            lambda: len(running_product.processes()[role]) == len(before),
            seconds=COMES_BACK_SECONDS,
            every=0.5,
        )
    running_product.wait_until_it_answers()
