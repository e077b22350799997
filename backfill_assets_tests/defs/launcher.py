"""Executes runs at once, in this process, for tests that need no process of their own."""

# ruff: noqa: TID251 - a launcher of Dagster's own, for its tests

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher

if TYPE_CHECKING:
    from dagster._core.launcher import LaunchRunContext


class LauncherOfTests(SyncInMemoryRunLauncher):
    """Launches in a thread, and waits: the backfill daemon launches from inside an event loop."""

    def launch_run(self, context: LaunchRunContext) -> None:
        thread = threading.Thread(target=super().launch_run, args=(context,))
        thread.start()
        thread.join()
