"""Every error of this package that a caller, or the person in front of it, can act on."""


class PostgresError(Exception):
    """PostgreSQL could not be provided; the message says what was found and what to do."""


class ProgramsNotFoundError(PostgresError):
    """No PostgreSQL on this machine can run the cluster: there is none, or of another version."""


class AccountError(PostgresError):
    """No account was found as which PostgreSQL may run and reach its files."""


class FolderError(PostgresError):
    """The server's folder is not usable: another owner, or something else in its place."""


class ServerStartError(PostgresError):
    """The embedded server did not come up; the message ends with the tail of its log."""


class LockTimeoutError(PostgresError):
    """Another process kept a lock of the server's folder for too long."""


class DatabaseUrlError(PostgresError):
    """BACKFILL_DATABASE_URL is not a URL of a PostgreSQL database."""


class DatabaseUnreachableError(PostgresError):
    """Nothing answers where the database is said to be."""


class DatabaseRefusedError(PostgresError):
    """The server answers and does not let us in: password, role, or access rules."""


class DatabaseRightError(PostgresError):
    """The role may not create a database that is needed; the message holds the SQL to run."""
