"""What `up` writes for Dagster's processes, and which processes it takes for its own."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest
import yaml

from backfill_assets.resources.dagster_processes import DagsterProcesses
from backfill_assets.resources.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOURS = 3 * 3600.0
SHOW_SETTINGS = """
import os
from dagster._cli.utils import get_temporary_instance_for_cli
from backfill_assets.resources.settings import settings
with get_temporary_instance_for_cli():
    print(os.environ["BACKFILL_HOME"], settings().home, settings().max_days)
"""


def processes_in(home: Path) -> DagsterProcesses:
    chosen = Settings.load({"BACKFILL_ENV_FILE": "", "BACKFILL_HOME": str(home)})
    return DagsterProcesses(chosen, port=3000)


@contextmanager
def a_process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def remember(home: Path, process: subprocess.Popen[bytes], *, born_later: float) -> None:
    """Leave what a killed `up` leaves: which process is its own, and its birth by another clock."""
    home.mkdir(exist_ok=True)
    birth = psutil.Process(process.pid).create_time() + born_later
    (home / "processes.json").write_text(json.dumps({process.pid: birth}))


@pytest.mark.parametrize("name", ["home", "my #1: home", "Größe 'x'"])
def test_dagster_is_told_of_the_home_whatever_its_path_is(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    processes_in(home).prepare()
    dagster = home / "dagster"
    instance = yaml.safe_load((dagster / "dagster.yaml").read_bytes())
    assert instance["compute_logs"]["config"]["base_dir"] == str(dagster / "logs")
    assert instance["local_artifact_storage"]["config"]["base_dir"] == str(dagster)
    assert instance["run_queue"]["max_concurrent_runs"] == 3
    workspace = yaml.safe_load((dagster / "workspace.yaml").read_bytes())
    assert workspace["load_from"][0]["grpc_server"]["socket"] == str(dagster / "code.sock")


@pytest.mark.parametrize("born_later", [0.0, 1.0, -2.0])  # a clock that was corrected meanwhile
def test_what_a_killed_up_left_running_is_ended(tmp_path: Path, born_later: float) -> None:
    with a_process() as process:
        remember(tmp_path, process, born_later=born_later)
        processes_in(tmp_path).prepare()
        assert process.poll() is not None


def test_a_stranger_whose_pid_was_ours_is_left_alone(tmp_path: Path) -> None:
    with a_process() as process:
        remember(tmp_path, process, born_later=-HOURS)
        processes_in(tmp_path).prepare()
        assert process.poll() is None


def test_every_process_has_the_settings_of_up_whatever_stands_in_env_files(tmp_path: Path) -> None:
    """Dagster's own way: its programs put the file's variables over their environment."""
    (tmp_path / ".env").write_text("BACKFILL_HOME=/somebodys\nBACKFILL_MAX_DAYS=3\n")
    processes = processes_in(tmp_path / "home")
    command = [sys.executable, "-c", SHOW_SETTINGS]
    shown = subprocess.check_output(command, cwd=tmp_path, env=processes.environment, text=True)
    assert shown.split() == ["/somebodys", str(tmp_path / "home"), "183"]
