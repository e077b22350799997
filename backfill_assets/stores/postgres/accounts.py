"""As whom PostgreSQL runs, which refuses to be root.

Root needs no new user for it. Inside a user namespace that maps root to another number,
PostgreSQL sees that number while all files stay root's: nothing changes owner. Where user
namespaces are not allowed (most containers), root drops to an account that exists, which then
owns the cluster and nothing else.
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from backfill_assets.stores.postgres.errors import AccountError, FolderError
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.programs import Programs

CHECK_TIMEOUT_SECONDS = 20  # milliseconds, unless the disk is cold
REACHABLE = "all reachable"
# Prints the first argument that may not be entered or executed.
CHECK_SCRIPT = f'for p in "$@"; do [ -x "$p" ] || {{ echo "$p"; exit 0; }}; done; echo {REACHABLE}'

Stream = int | BinaryIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """As whom PostgreSQL's programs run.

    Attributes:
        description: How messages call it.
        prefix: What stands before each command.
        uid: The user to become, who owns the cluster; None to stay who we are.
        gid: The group to become; None to stay.
    """

    description: str
    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None

    def start(
        self,
        command: Sequence[str],
        *,
        stdout: Stream,
        stderr: Stream,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start ``command`` in a session of its own, which no terminal and no Ctrl-C reaches."""
        return subprocess.Popen(  # noqa: S603 - our own command line, no shell expansion
            [*self.prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
            cwd="/",
            env=_clean_environment(),
            start_new_session=True,
        )

    def give(self, *paths: Path) -> None:
        """Make the account the owner of ``paths``, where it is another than ourselves."""
        if self.uid is not None and self.gid is not None:
            for path in paths:
                os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def obstacle(self, paths: Iterable[Path]) -> str | None:
        """Return why the account cannot use ``paths``; None where it can."""
        check = ["/bin/sh", "-c", CHECK_SCRIPT, "sh", *map(str, paths)]
        try:
            process = self.start(check, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            return str(error)
        with process:
            said, complaint = process.communicate(timeout=CHECK_TIMEOUT_SECONDS)
        if said.decode().strip() == REACHABLE:
            return None
        if process.returncode != 0:
            return complaint.decode(errors="replace").strip() or "it cannot be used here"
        return f"it may not enter or execute {said.decode(errors='replace').strip()}"


def choose_account(folder: ServerFolder, programs: Programs) -> Account:
    """Return the first account as which PostgreSQL may run and reach its files.

    Raises:
        AccountError: none can; the message says what hinders each.
        FolderError: the cluster belongs to another user, and we are not root.
    """
    refused = []
    for account in _candidates(folder):
        obstacle = account.obstacle(needed_paths(folder, programs))
        if obstacle is None:
            return account
        refused.append(f"\n  {account.description}: {obstacle}")
    raise AccountError(_explain(folder, programs, "".join(refused)))


def check_account(account: Account, folder: ServerFolder, programs: Programs) -> None:
    """Refuse an account that cannot reach the folder or the programs.

    Raises:
        AccountError: the message names the path that stops it.
    """
    if (obstacle := account.obstacle(needed_paths(folder, programs))) is not None:
        raise AccountError(_explain(folder, programs, f"\n  {account.description}: {obstacle}"))


def needed_paths(folder: ServerFolder, programs: Programs) -> list[Path]:
    """Return what must be entered or executed, outermost first."""
    folders = [*reversed(folder.path.parents), folder.path]
    return [*folders, *reversed(programs.postgres.parents), programs.postgres]


def own_account() -> Account:
    """Return ourselves."""
    return Account(description=f"the current user (uid {os.geteuid()})")


def namespace_account() -> Account:
    """Return ourselves, seen by PostgreSQL as an ordinary user that has a name.

    initdb looks its user up by number: the mapped one must exist, any one will do.
    """
    user = _existing_user("daemon", "postgres", "nobody")
    prefix = ("unshare", "--user", f"--map-user={user.pw_uid}", "--")
    return Account(description=f"a user namespace (seen as {user.pw_name})", prefix=prefix)


def dropped_account(user: pwd.struct_passwd | None = None) -> Account:
    """Return an ordinary user to whom root drops: ``user``, or one that exists everywhere."""
    user = user or _existing_user("nobody", "daemon", "postgres")
    description = f"the user {user.pw_name} (uid {user.pw_uid})"
    return Account(description=description, uid=user.pw_uid, gid=user.pw_gid)


def _candidates(folder: ServerFolder) -> Iterator[Account]:
    owner = folder.data.stat().st_uid if folder.data.exists() else os.geteuid()
    if os.geteuid() != 0:
        yield from _candidates_for_ordinary_user(folder, owner)
    elif owner != 0:
        yield dropped_account(_user(owner, folder))
    else:
        if shutil.which("unshare"):
            yield namespace_account()
        if (folder_owner := folder.path.stat().st_uid) != 0:
            yield dropped_account(_user(folder_owner, folder))
        yield dropped_account()


def _candidates_for_ordinary_user(folder: ServerFolder, owner: int) -> Iterator[Account]:
    if owner != os.geteuid():
        message = (
            f"{folder.data}: it belongs to uid {owner} and we are uid {os.geteuid()}; run as that "
            "user, or name another folder, or set BACKFILL_DATABASE_URL"
        )
        raise FolderError(message)
    try:
        pwd.getpwuid(owner)
    except KeyError:  # a container with an arbitrary uid, for which initdb would not run
        if shutil.which("unshare"):
            yield namespace_account()
    else:
        yield own_account()


def _user(uid: int, folder: ServerFolder) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        message = (
            f"{folder.path}: it belongs to uid {uid}, which has no entry in /etc/passwd, and "
            "PostgreSQL runs as no such user; give the folder to a user that exists"
        )
        raise AccountError(message) from None


def _existing_user(*preferred: str) -> pwd.struct_passwd:
    users = {user.pw_name: user for user in reversed(pwd.getpwall()) if user.pw_uid != 0}
    for name in (*preferred, *users):
        if name in users:
            return users[name]
    message = "PostgreSQL refuses to run as root, and /etc/passwd has no other user; add one"
    raise AccountError(message)


def _clean_environment() -> dict[str, str]:
    # PGPORT, PGDATA and their like would be taken for ours; messages stay in English.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def _explain(folder: ServerFolder, programs: Programs, refused: str) -> str:
    return (
        f"PostgreSQL cannot run in {folder.path} with the programs in {programs.folder}; as root "
        f"it refuses to run at all, and tried were:{refused or ' no other account is there'}\n"
        "Run as an ordinary user; or name a folder (and install into one) that all users may "
        "enter, or `chmod o+x` the folder named above; or allow user namespaces (for example "
        "`docker run --security-opt seccomp=unconfined`); or set BACKFILL_DATABASE_URL to use a "
        "server of yours"
    )
