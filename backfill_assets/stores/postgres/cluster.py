"""How a cluster comes to be: whole, or not at all."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from backfill_assets.stores.postgres.accounts import Account
from backfill_assets.stores.postgres.errors import FolderError, ServerStartError
from backfill_assets.stores.postgres.folder import MAKING_PREFIX, ServerFolder, flush_folder
from backfill_assets.stores.postgres.setup import ServerSetup

ROLE = "backfill"
INITDB_TIMEOUT_SECONDS = 300  # 1 s here; minutes on a slow network disk
SYNCFS_MAJOR = 17
PASSWORD_BYTES = 24  # 192 bits; its base64 form needs no quoting in a URL


def cluster_major(folder: ServerFolder) -> int | None:
    """Return the major version that made the cluster; None where there is no cluster.

    Raises:
        FolderError: something that is not a cluster stands in its place.
    """
    if not folder.data.exists():
        return None
    try:
        return int((folder.data / "PG_VERSION").read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError) as error:
        message = (
            f"{folder.data}: not a PostgreSQL cluster (no PG_VERSION that can be read), and this "
            "project never leaves half a cluster under this name; move it away and try again"
        )
        raise FolderError(message) from error


def make_cluster(setup: ServerSetup, *, lock: int) -> None:
    """Make the cluster beside its place and rename it there.

    A crash leaves no cluster, and a leftover that the next maker sweeps. `initdb` inherits
    ``lock``: whoever holds it next knows that no `initdb` of a dead maker is still running.

    Raises:
        ServerStartError: initdb failed; the message holds what it said.
    """
    folder, account = setup.folder, setup.account
    sweep_leftovers(folder)
    making = Path(tempfile.mkdtemp(prefix=MAKING_PREFIX, dir=folder.path))
    data, password = making / "data", making / "password"
    data.mkdir(mode=0o700)
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe(PASSWORD_BYTES), encoding="ascii")
    account.give(making, data, password)
    _run(_initdb_command(setup, data, password), account, lock=lock)
    # Only now: initdb wants an empty folder.
    password.rename(data / folder.password.name)
    if setup.durable:
        _flush(data / folder.password.name)
    data.rename(folder.data)
    if setup.durable:
        flush_folder(folder.path)
    sweep_leftovers(folder)


def sweep_leftovers(folder: ServerFolder) -> None:
    """Remove what dead makers left; call only while holding the server's lock."""
    for leftover in folder.leftovers():
        shutil.rmtree(leftover, ignore_errors=True)


def give_cluster(folder: ServerFolder, account: Account) -> None:
    """Make the account the owner of a cluster that root owned until now."""
    if account.uid is not None and folder.data.stat().st_uid != account.uid:
        # The folder itself last: a crash on the way leaves a cluster that is still root's.
        account.give(*folder.data.rglob("*"), folder.data)


def _initdb_command(setup: ServerSetup, data: Path, password: Path) -> list[str]:
    return [
        str(setup.programs.initdb),
        f"--pgdata={data}",
        f"--username={ROLE}",
        f"--pwfile={password}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",  # there on every machine, and sorts alike on every machine
        "--no-instructions",
        *_durability_options(setup),
    ]


def _durability_options(setup: ServerSetup) -> list[str]:
    if not setup.durable:
        # Small log files, of 1 MB: a test's cluster is made, and copied, in half the time.
        return ["--no-sync", "--wal-segsize=1"]
    if setup.programs.major >= SYNCFS_MAJOR and sys.platform == "linux":
        return ["--sync-method=syncfs"]  # 0.7 s in all; a flush for each of 1,000 files makes it 3
    return []


def _run(command: list[str], account: Account, *, lock: int) -> None:
    process = account.start(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[lock]
    )
    with process:
        try:
            said, _ = process.communicate(timeout=INITDB_TIMEOUT_SECONDS)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        message = (
            f"{command[0]} failed as {account.description}, on {command[1]}; "
            f"it said:\n{said.decode(errors='replace')}"
        )
        raise ServerStartError(message)


def _flush(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    flush_folder(file.parent)
