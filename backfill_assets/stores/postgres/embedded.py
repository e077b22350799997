"""The PostgreSQL that comes with the project: there when it is needed, gone when nobody is.

Whoever calls `EmbeddedPostgres.ensure_running` finds a server, whatever was killed before: the
first caller starts it, the others join, and a keeper stops it after the last.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode

from backfill_assets.stores.postgres.accounts import Account, check_account, choose_account
from backfill_assets.stores.postgres.cluster import ROLE, cluster_major, give_cluster, make_cluster
from backfill_assets.stores.postgres.connections import Target, connect, loss_is_told
from backfill_assets.stores.postgres.databases import STATEMENTS, Databases, create_database
from backfill_assets.stores.postgres.errors import (
    DatabaseRefusedError,
    DatabaseUnreachableError,
    FolderError,
    LockTimeoutError,
    ServerStartError,
)
from backfill_assets.stores.postgres.folder import ServerFolder, check_depth
from backfill_assets.stores.postgres.locks import PROCESS_GUARD, critical_section, heritable
from backfill_assets.stores.postgres.membership import ensure_keeper, has_keeper, join, leave
from backfill_assets.stores.postgres.ports import HOST, ports_to_try, remember_port
from backfill_assets.stores.postgres.processes import (
    PidFile,
    end_orphans,
    is_server_process,
    read_pid_file,
    remove_misleading_pid_file,
)
from backfill_assets.stores.postgres.programs import Programs, check_version, find_programs
from backfill_assets.stores.postgres.server import running_server, start_server, with_log
from backfill_assets.stores.postgres.setup import ServerSetup

BASE_DATABASE = "backfill"
MAINTENANCE_DATABASE = "postgres"  # initdb makes it
START_LOCK_TIMEOUT_SECONDS = 200  # longer than another process may take to start the server
ORPHANS_LEAVE_SECONDS = 1  # they notice their server's death at once, unless they are computing
ORPHANS_END_SECONDS = 15
RECOVERY_SECONDS = 60  # a server that restarts itself after one of its processes was killed
POLL_SECONDS = 0.02
# Said in every URL: what the environment wants of other servers (PGSSLMODE …) is not for ours.
PLAIN_CONNECTION = {
    "hostaddr": HOST,
    "sslmode": "disable",
    "gssencmode": "disable",
    "channel_binding": "disable",
    "target_session_attrs": "any",
    "options": "-cdefault_transaction_read_only=off",  # SQLAlchemy ignores an empty one
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a server listens, and as whom to log in."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)

    def url(self, database: str) -> str:
        """Return the URL of a database on this server."""
        name = quote(database, safe="")
        server = f"{self.user}:{self.password}@{self.host}:{self.port}"
        return f"postgresql://{server}/{name}?{urlencode(PLAIN_CONNECTION)}"


class EmbeddedPostgres:
    """A PostgreSQL of this project's own, in a folder of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = True,
        programs: Programs | None = None,
        account: Account | None = None,
    ) -> None:
        """Name the server; nothing is started yet.

        Args:
            directory: Where everything of it lives; made if absent.
            durable: Whether a commit survives a power cut. False is for tests.
            programs: The programs that run it; the preferred ones of the machine if None.
            account: As whom they run; the first that works if None.
        """
        self.databases = Databases.named_after(BASE_DATABASE)
        self._folder = ServerFolder(directory.resolve())
        self._durable = durable
        self._programs = programs
        self._account = account
        self._seen: tuple[PidFile, ServerAddress] | None = None

    def ensure_running(self) -> ServerAddress:
        """Join the server as a user, for the rest of this process's life, and see that it runs.

        Cheap while nothing changed. Otherwise starts what is dead, one process at a time.

        Raises:
            PostgresError: it cannot run; the subclass and the message say why and what to do.
        """
        with PROCESS_GUARD:
            try:
                self._folder.path.mkdir(parents=True, exist_ok=True)
                join(self._folder)
                if (address := self._unchanged()) is not None:
                    return address
                with critical_section(
                    self._folder.start_lock, timeout_seconds=START_LOCK_TIMEOUT_SECONDS
                ):
                    return self._bring_up()
            except OSError as error:  # of another owner, read-only, full, no folder at all …
                message = (
                    f"{self._folder.path}: the embedded PostgreSQL cannot use this folder: "
                    f"{error}; run as the folder's owner, or name another folder"
                )
                raise FolderError(message) from error

    def leave(self) -> None:
        """Let this process use the server no more; the last to leave lets it stop."""
        self._seen = None
        leave(self._folder)

    def url(self, database: str) -> str:
        """Return the URL of a database on the running server."""
        return self.ensure_running().url(database)

    def ensure_database(self, name: str) -> None:
        """Create the database unless it exists.

        Raises:
            DatabaseUnreachableError: the server died meanwhile.
        """
        target = self._target(self.ensure_running())
        with connect(target) as connection, loss_is_told(connection, target.name):
            create_database(connection, name)

    def _unchanged(self) -> ServerAddress | None:
        if self._seen is None:
            return None
        seen, address = self._seen
        same = read_pid_file(self._folder) == seen
        if same and is_server_process(seen.pid, self._folder.data) and has_keeper(self._folder):
            return address
        return None

    def _bring_up(self) -> ServerAddress:
        server = running_server(self._folder)
        # Before the server: from its first moment there is someone who stops it.
        ensure_keeper(self._folder)
        if server is None:
            server = self._start()
        address = self._address(server)
        self._check(address)
        # As read before the check: a server that restarts itself from now on is checked again.
        self._seen = (server, address)
        return address

    def _start(self) -> PidFile:
        major = cluster_major(self._folder)
        setup = self._decide(major)
        self._wait_for_orphans()
        # Its holders are PostgreSQL's processes and us: from here on none but ours runs.
        with heritable(self._folder.server_lock, timeout_seconds=ORPHANS_END_SECONDS) as lock:
            if major is None:
                make_cluster(setup, lock=lock)
            give_cluster(setup.folder, setup.account)
            remove_misleading_pid_file(setup.folder)
            server = start_server(setup, lock=lock, ports=ports_to_try(setup.folder))
        if server.port is not None:
            remember_port(self._folder, server.port)
        return server

    def _decide(self, major: int | None) -> ServerSetup:
        check_depth(self._folder)
        programs = self._programs or find_programs(major)
        check_version(programs, major)
        if self._account is not None:
            check_account(self._account, self._folder, programs)
        account = self._account or choose_account(self._folder, programs)
        return ServerSetup(
            folder=self._folder, programs=programs, account=account, durable=self._durable
        )

    def _wait_for_orphans(self) -> None:
        try:
            with heritable(self._folder.server_lock, timeout_seconds=ORPHANS_LEAVE_SECONDS):
                return
        except LockTimeoutError:
            end_orphans(self._folder.data)

    def _address(self, server: PidFile) -> ServerAddress:
        if server.port is None:
            message = f"{self._folder.postmaster_pid}: names no port; PostgreSQL wrote half of it"
            raise ServerStartError(message)
        password = self._folder.password.read_text(encoding="ascii").strip()
        return ServerAddress(host=HOST, port=server.port, user=ROLE, password=password)

    def _check(self, address: ServerAddress) -> None:
        """Log in once, waiting while the server recovers from the death of one of its own."""
        target = self._target(address)
        deadline = time.monotonic() + RECOVERY_SECONDS
        while True:
            try:
                with connect(target) as connection, loss_is_told(connection, target.name):
                    row = connection.execute(STATEMENTS["is_durable"]).fetchone()
                break
            except (DatabaseRefusedError, DatabaseUnreachableError) as error:
                if time.monotonic() > deadline:
                    message = f"{self._folder.data}: PostgreSQL runs and does not answer: {error}"
                    raise ServerStartError(with_log(message, self._folder)) from error
            time.sleep(POLL_SECONDS)
        if self._durable and row != (True,):
            message = (
                f"{self._folder.data}: the server was started for tests (durable=False) and may "
                "lose data in a power cut; end its users, or use another folder"
            )
            raise ServerStartError(message)

    def _target(self, address: ServerAddress) -> Target:
        return Target(
            url=address.url(MAINTENANCE_DATABASE),
            name=f"the embedded PostgreSQL in {self._folder.path}",
            password=address.password,
            remedy="See its server.log",
        )
