"""Run the comparisons that are named, or all, and write the table."""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets_tests.benchmarks import report
from backfill_assets_tests.benchmarks.bench import Bench
from backfill_assets_tests.benchmarks.report import COMPARISONS
from backfill_assets_tests.postgres_fixtures import Workshop, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets_tests.benchmarks.measuring import Figure

RESULTS = Path(".backfill").resolve()


def main(names: list[str]) -> None:
    """Run the named comparisons, or all, one after the other; print each when it is done."""
    unknown = set(names) - set(COMPARISONS)
    if unknown:
        sys.exit(f"no comparison {min(unknown)!r}; there are {', '.join(COMPARISONS)}")
    RESULTS.mkdir(exist_ok=True)
    # All is removed in the end only: after many files are deleted, disks are slow for minutes.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=RESULTS) as folder:
        for name in names or COMPARISONS:
            with bench(Path(folder) / name) as one:
                figures = figures_of(name, one)
            text = report.write(RESULTS, name, figures, datetime.now(UTC).date())
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


def figures_of(name: str, one: Bench) -> list[Figure]:
    """Run one comparison."""
    module = import_module(f"backfill_assets_tests.benchmarks.{name}")
    figures: list[Figure] = module.run(one)
    return figures


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    """Yield a bench beside the store, with a PostgreSQL that flushes as the product's does."""
    folder.mkdir()
    for one in (folder.parent, folder):
        one.chmod(0o755)  # the server's account must be able to enter
    with running_server(folder / "postgres", durable=True) as server:
        yield Bench(folder, Workshop(server), results=RESULTS)


if __name__ == "__main__":
    main(sys.argv[1:])
