"""Folders with and without a cluster, for tests that kill what runs in them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from backfill_assets.stores.postgres.accounts import dropped_account
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.programs import Programs, find_programs
from backfill_assets_tests.postgres_fixtures import temporary_folder
from backfill_assets_tests.stores.postgres.processes_of_tests import (
    end_all,
    is_quiet,
    wait_until,
)


@pytest.fixture
def empty_folder() -> Iterator[Path]:
    """A folder in which no server was ever started. What a test leaves running is killed."""
    with temporary_folder("backfill-test-") as folder:
        yield folder
        EmbeddedPostgres(folder).leave()
        end_all(folder)


@pytest.fixture(scope="session")
def stopped_cluster() -> Iterator[Path]:
    """A folder with a cluster that was cleanly stopped."""
    with temporary_folder("backfill-test-") as folder:
        server = EmbeddedPostgres(folder, durable=False)
        server.ensure_running()
        server.leave()
        wait_until(lambda: is_quiet(folder))
        yield folder


@pytest.fixture(scope="session")
def programs_for_all() -> Iterator[Programs]:
    """Programs that every account may run: a copy, where the installed ones stand in a home."""
    programs = find_programs()
    if os.geteuid() != 0 or dropped_account().obstacle([*programs.postgres.parents][::-1]) is None:
        yield programs
        return
    with temporary_folder("backfill-test-") as folder:
        wheel = programs.folder.parents[1]
        for part in (wheel, wheel.with_name(f"{wheel.name}.libs")):
            shutil.copytree(part, folder / part.name, symlinks=True)
        yield Programs(folder / wheel.name / "pginstall" / "bin", programs.major)


@pytest.fixture
def folder(stopped_cluster: Path) -> Iterator[Path]:
    """A folder with a cluster and nothing else, in which nothing runs; the same for every test.

    Tests may kill whatever they like: the cluster recovers, or something is wrong. What damages it
    takes `copied_folder`.
    """
    keep_only_cluster(stopped_cluster)
    yield stopped_cluster
    EmbeddedPostgres(stopped_cluster).leave()
    end_all(stopped_cluster)


@pytest.fixture
def copied_folder(empty_folder: Path, folder: Path) -> Path:
    """A folder with a cluster of the test's own."""
    shutil.copytree(folder / "data", empty_folder / "data")
    return empty_folder


@pytest.fixture
def server(folder: Path) -> EmbeddedPostgres:
    """The server of ``folder``; not started. This process stops using it after the test."""
    return EmbeddedPostgres(folder, durable=False)


def keep_only_cluster(folder: Path) -> None:
    """Remove what earlier servers left beside the cluster."""
    (folder / "data" / "postmaster.pid").unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.name != "data":
            path.unlink()
