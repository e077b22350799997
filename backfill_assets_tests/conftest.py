"""What every folder of tests shares: a real PostgreSQL for the whole session, and how the
properties are searched.

``repeatable`` draws the same examples on every run, so that the same commit always gets the same
verdict and a change is never blamed for what an earlier one broke. ``explore`` draws new ones, and
more of them: ``pytest backfill_assets_tests/core --hypothesis-profile=explore``. Neither has a
deadline: a busy machine is not a failure.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["backfill_assets_tests.postgres_fixtures"]

# Catalogues are drawn from many small choices; drawing one can be slow on a busy machine.
SLOW_MACHINE = (HealthCheck.too_slow,)

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=SLOW_MACHINE
)
settings.register_profile(
    "explore", deadline=None, max_examples=2_000, suppress_health_check=SLOW_MACHINE
)


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background job ignores Ctrl-C, and so would every child: Dagster ends the programs
    # that capture a run's output with an interrupt, and would wait for them for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--hypothesis-profile") is None:
        settings.load_profile("repeatable")
