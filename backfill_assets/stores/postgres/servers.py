"""A PostgreSQL server, whoever provides it: the project itself, or the user by a URL."""

from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from backfill_assets.stores.postgres.connections import Target, connect, loss_is_told
from backfill_assets.stores.postgres.databases import Databases, create_database
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.errors import DatabaseRefusedError, DatabaseUrlError

EXPECTED = "expected is postgresql://user:password@host:5432/database"


class PostgresServer(Protocol):
    """What the project needs of a server."""

    @property
    def databases(self) -> Databases:
        """The names of the project's databases on this server."""
        ...

    def url(self, database: str) -> str:
        """Return the URL of a database on the server, which runs when this returns."""
        ...

    def ensure_database(self, name: str) -> None:
        """Create the database unless it exists, whoever else is creating it.

        Raises:
            PostgresError: the server cannot be used, or the role may not create it.
        """
        ...


class ExternalPostgres:
    """A server that somebody else runs.

    The database named in the URL is the base name of the project's three databases.
    """

    def __init__(self, url: str) -> None:
        """Read the URL; nothing is connected to yet.

        Raises:
            DatabaseUrlError: it is not the URL of a PostgreSQL database.
        """
        base = _check_url(url)
        self.databases = Databases.named_after(base)
        self._parts = urlsplit(url)

    def url(self, database: str) -> str:
        """Return the given URL with another database in it."""
        # By hand: `geturl` drops the two slashes where no host follows them.
        query = f"?{self._parts.query}" if self._parts.query else ""
        return f"postgresql://{self._parts.netloc}/{quote(database, safe='')}{query}"

    def ensure_database(self, name: str) -> None:
        """Create the database unless it exists.

        Raises:
            DatabaseUnreachableError: nothing answers there.
            DatabaseRefusedError: the server answers and does not let us in.
            DatabaseRightError: the role may not create the database.
        """
        with (
            self._connect_somewhere(name) as connection,
            loss_is_told(connection, "BACKFILL_DATABASE_URL"),
        ):
            create_database(connection, name)

    def _connect_somewhere(self, wanted: str) -> psycopg.Connection:
        """Connect to the wanted database if it lets us in, else to one that is surely there."""
        try:
            return connect(self._target(wanted))
        except DatabaseRefusedError:
            # Perhaps only because it does not exist yet. The last refusal is the one to report.
            if (connection := self._connect_if_let_in(self.databases.source)) is not None:
                return connection
            return connect(self._target("postgres"))

    def _connect_if_let_in(self, database: str) -> psycopg.Connection | None:
        try:
            return connect(self._target(database))
        except DatabaseRefusedError:
            return None

    def _target(self, database: str) -> Target:
        host, port = self._parts.hostname or "the default host", self._parts.port or 5432
        user = unquote(self._parts.username or "")
        return Target(
            url=self.url(database),
            name=f"BACKFILL_DATABASE_URL (user {user!r} at {host}:{port}, database {database!r})",
            password=unquote(self._parts.password or "") or None,
            remedy=(
                "Correct user and password in the URL (characters such as @ : / ? # in a password "
                "are written %40 %3A %2F %3F %23), or allow the login in the server's pg_hba.conf"
            ),
        )


def postgres_server(database_url: str | None, directory: Path) -> PostgresServer:
    """Return the server that the user names, or the embedded one in ``directory``.

    Args:
        database_url: The value of BACKFILL_DATABASE_URL; None or blank where it is not set.
        directory: Where an embedded server lives; not touched where there is a URL.

    Raises:
        DatabaseUrlError: it is not the URL of a PostgreSQL database.
    """
    if database_url is None or not database_url.strip():
        return EmbeddedPostgres(directory)
    return ExternalPostgres(database_url.strip())


def _check_url(url: str) -> str:
    """Return the database that the URL names. Errors show nothing that could be a password."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in {"postgresql", "postgres"}:
        shown = repr(scheme) if separator else "no '://'"
        message = f"BACKFILL_DATABASE_URL: begins with {shown}, not with postgresql://; {EXPECTED}"
        raise DatabaseUrlError(message)
    try:
        base = unquote(urlsplit(url).path.removeprefix("/"))
        _ = urlsplit(url).port
        conninfo_to_dict(url)
    except (ValueError, psycopg.ProgrammingError):
        # `from None`: the original message may quote a part of the password.
        message = (
            f"BACKFILL_DATABASE_URL: cannot be read as a URL; {EXPECTED}. Characters such as "
            "@ : / ? # in a password are written %40 %3A %2F %3F %23"
        )
        raise DatabaseUrlError(message) from None
    if not base or "/" in base:
        message = f"BACKFILL_DATABASE_URL: names no database after the host; {EXPECTED}"
        raise DatabaseUrlError(message)
    return base
