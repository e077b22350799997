"""The environment of the peers: made once by uv, in a folder that git ignores."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[3]
ENVIRONMENT = PROJECT / ".backfill/peers"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
LOCK = PROJECT / "requirements.lock"  # of what both have, both have the same version
PACKAGE = "backfill_assets_tests.benchmarks.peers"


def run_peer(module: str, variables: dict[str, str] | None = None, **work: Any) -> dict[str, Any]:
    """Run a module of this package with the peers' Python; return what it measured.

    Args:
        variables: More of the environment.
        work: What it is given to do, as JSON on its standard input.
    """
    own = {k: v for k, v in os.environ.items() if not k.startswith(("BACKFILL_", "DAGSTER"))}
    done = subprocess.run(
        [_python(), "-m", f"{PACKAGE}.{module}"],
        cwd=PROJECT,
        env=own | {"PYTHONPATH": str(PROJECT)} | (variables or {}),
        input=json.dumps(work, default=str),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        message = f"{module} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        raise AssertionError(message)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _python() -> Path:
    """Return the peers' Python; install it where it is absent or the requirements have changed."""
    python, ready = ENVIRONMENT / "bin/python", ENVIRONMENT / "ready"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + LOCK.read_bytes()).hexdigest()
    if not ready.exists() or ready.read_text() != wanted:
        uv = Path(sys.executable).with_name("uv")
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, ENVIRONMENT)
        _run(
            *(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python),
            *("--requirements", REQUIREMENTS, "--constraints", LOCK),
        )
        ready.write_text(wanted)
    return python


def _run(*command: str | Path) -> None:
    subprocess.run(command, cwd=PROJECT, check=True)
