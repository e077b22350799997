"""Where Dagster keeps its runs and events: PostgreSQL, pooled, at an address found when needed.

Here: the class that ``dagster.yaml`` names under ``storage: custom:``, and the engine under it. Not
here: how a server is found or started (``stores``), and what is in the events (``event_log``).

Dagster's own class wants an address in ``dagster.yaml`` and opens a connection for every statement,
which is most of what an event costs. This one asks for the address at each new connection, so that
a server that comes back on another port is followed, and keeps a few connections open.

Those belong to the process, not to an instance: a code server makes a new instance for every tick
of a sensor, and Dagster closes the engine of none.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import unquote

import dagster as dg
import sqlalchemy as sa
from dagster._serdes import ConfigurableClassData
from dagster_postgres import (
    DagsterPostgresStorage,
    PostgresEventLogStorage,
    PostgresRunStorage,
    PostgresScheduleStorage,
)
from sqlalchemy.engine import Dialect, Engine

Address = Callable[[], str]  # returns the URL of the database, as it is now

# Idle connections a process keeps. The daemon has seven threads, which are seldom busy at once; a
# dozen processes must stay well below the 100 connections that PostgreSQL takes by default.
POOL_SIZE = 4
# Waiting for a connection while holding one could be a deadlock, and Dagster does hold one: it asks
# whether a table exists while it is in a transaction.
UNBOUNDED = -1

# One of each storage. Where one is missing, Dagster's own code makes all that is missing.
SOME_TABLES = frozenset({"runs", "instance_info", "event_logs", "jobs"})
MAKING_TABLES = 7_021_968_331  # names a lock; any number that nobody else uses in this database


def project_database_url() -> str:
    """Return where the project's settings say that Dagster's database is now."""
    # Not at the top: where another address is given, no settings are needed.
    from backfill_assets.resources.settings import dagster_database_url  # noqa: PLC0415

    return dagster_database_url()


class BackfillInstanceStorage(DagsterPostgresStorage):
    """Runs, events and schedules of Dagster, on the server that the project's settings name.

    A killed server costs the statement in hand; every later one goes where the server is by then.
    Threads may share an instance; a forked child opens connections of its own.
    """

    def __init__(
        self,
        *,
        should_autocreate_tables: bool = True,
        inst_data: ConfigurableClassData | None = None,
        address: Address = project_database_url,
    ) -> None:
        """Open the storage.

        Args:
            should_autocreate_tables: Whether to make the tables where they are missing.
            inst_data: Where in ``dagster.yaml`` this came from.
            address: Where to ask for the database, at each new connection.
        """
        if should_autocreate_tables:
            make_missing_tables(address)
        # Dagster's own parts, which `super` makes, connect to nothing as long as nobody uses them.
        super().__init__("postgresql://", should_autocreate_tables=False, inst_data=inst_data)
        self._run_storage = _RunStorage(address)
        self._event_log_storage = _EventLogStorage(address)
        self._schedule_storage = _ScheduleStorage(address)

    @classmethod
    def config_type(cls) -> dict[str, dg.Field]:
        """Return what ``config:`` may say: nothing of it is secret, and nothing is required."""
        return {"should_autocreate_tables": dg.Field(bool, is_required=False, default_value=True)}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> Self:
        """Make the storage from what ``dagster.yaml`` says."""
        return cls(inst_data=inst_data, **config_value)


class _OnSharedEngine:
    """What the three parts have in common: an engine of the process instead of their own."""

    def __init__(self, address: Address) -> None:
        super().__init__("postgresql://", should_autocreate_tables=False)  # type: ignore[call-arg]
        self._address = address
        self._engine = shared_engine(EngineKind(address=address))

    def optimize_for_webserver(
        self, statement_timeout: int, pool_recycle: int, max_overflow: int
    ) -> None:
        """Do as the webserver wishes.

        Args:
            statement_timeout: Milliseconds.
            pool_recycle: Seconds after which a connection is replaced.
            max_overflow: How many connections there may be beyond the pool.
        """
        kind = EngineKind(
            address=self._address,
            statement_timeout_ms=statement_timeout,
            recycle_seconds=pool_recycle,
            max_overflow=max_overflow,
        )
        self._engine = shared_engine(kind)


class _RunStorage(_OnSharedEngine, PostgresRunStorage):
    pass


class _EventLogStorage(_OnSharedEngine, PostgresEventLogStorage):
    pass


class _ScheduleStorage(_OnSharedEngine, PostgresScheduleStorage):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """What makes two engines of a process different."""

    address: Address
    statement_timeout_ms: int | None = None
    recycle_seconds: int = -1
    max_overflow: int = UNBOUNDED


_engines: dict[EngineKind, Engine] = {}
_engines_lock = threading.Lock()


def shared_engine(kind: EngineKind) -> Engine:
    """Return the engine of that kind, which is made once in a process."""
    with _engines_lock:
        if kind not in _engines:
            _engines[kind] = _make_engine(kind)
        return _engines[kind]


def close_connections() -> None:
    """Close the idle connections of this process. The next statement opens one where it should.

    For a process that is about to stop the server, or to use another one.
    """
    with _engines_lock:
        for engine in _engines.values():
            engine.dispose()


def _make_engine(kind: EngineKind) -> Engine:
    engine = sa.create_engine(
        "postgresql://",
        isolation_level="AUTOCOMMIT",  # as Dagster's own engines
        pool_size=POOL_SIZE,
        max_overflow=kind.max_overflow,
        pool_recycle=kind.recycle_seconds,
        pool_pre_ping=True,  # a killed server leaves dead connections in the pool
    )

    def fill_in_address(
        dialect: Dialect, _record: object, cargs: list[str], cparams: dict[str, Any]
    ) -> None:
        cargs[:], found = dialect.create_connect_args(_sqlalchemy_url(kind.address()))
        cparams.update(found)
        if kind.statement_timeout_ms is not None:
            timeout = f"-c statement_timeout={kind.statement_timeout_ms}"
            cparams["options"] = f"{cparams.get('options', '')} {timeout}".strip()

    sa.event.listen(engine, "do_connect", fill_in_address)
    return engine


def _sqlalchemy_url(url: str) -> sa.URL:
    """Return the URL with the database's name where SQLAlchemy decodes it as PostgreSQL does."""
    parsed = sa.make_url(url)
    name = unquote(parsed.database or "")
    return parsed.set(database="").update_query_dict({"dbname": name})


def make_missing_tables(address: Address = project_database_url) -> bool:
    """Make Dagster's tables where they are missing; return whether they were.

    Args:
        address: Where to ask for the database, which exists.
    """
    engine = shared_engine(EngineKind(address=address))
    if _has_tables(engine):
        return False
    # Webserver, daemon and code server come up together, and Dagster's own code fails when two
    # make the same table.
    one_at_a_time = sa.select(sa.func.pg_advisory_xact_lock(MAKING_TABLES))
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        connection.execute(one_at_a_time)
        are_missing = not _has_tables(engine)
        if are_missing:
            url = _sqlalchemy_url(address()).render_as_string(hide_password=False)
            DagsterPostgresStorage(url, should_autocreate_tables=True)
        connection.rollback()
    return are_missing


def _has_tables(engine: Engine) -> bool:
    return set(sa.inspect(engine).get_table_names()) >= SOME_TABLES


def _forget_inherited_engines() -> None:
    """A socket that parent and child both write to serves neither."""
    global _engines_lock  # noqa: PLW0603 - another thread of the parent may hold the old one
    _engines_lock = threading.Lock()
    for engine in _engines.values():
        engine.dispose(close=False)  # closing would end the parent's sessions


os.register_at_fork(after_in_child=_forget_inherited_engines)
