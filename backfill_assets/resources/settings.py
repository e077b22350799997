"""The one place where configuration enters: variables ``BACKFILL_…``, also from ``.env``.

Every process of the project resolves the same settings from here, or stops and names the variable.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from backfill_assets.core.cycles import Bounds
from backfill_assets.core.errors import SettingsError
from backfill_assets.resources.env_file import values_in
from backfill_assets.stores.postgres.servers import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROJECT = Path(__file__).resolve().parents[2]
PREFIX = "BACKFILL_"
ENV_FILE = PREFIX + "ENV_FILE"
# Set by `up` for the processes that it starts, and by nobody else: all its settings.
HANDED_ON = PREFIX + "HANDED_ON"


class Settings(BaseModel):
    """All settings, with their defaults; the README lists them."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    home: Path = Field(PROJECT / ".backfill", description="Everything the project keeps by itself.")
    store: Path | None = Field(None, description="The committed files; default HOME/store.")
    file_format: Literal["parquet", "json"] = Field("parquet", description="Of every file.")
    commit_protocol: Literal["link", "marker"] = Field(
        "link", description="How files are committed; 'marker' needs neither links nor renames."
    )
    database_url: str | None = Field(
        None,
        repr=False,  # it holds a password
        description="A PostgreSQL database; default is an embedded server in HOME/postgres.",
    )
    clock: str = Field(
        "real", description="'real', a fixed instant, or 'INSTANT@SPEED' to replay from there."
    )
    max_days: int = Field(183, gt=0, description="Days that one run takes up.")
    max_partitions: int = Field(10_000, gt=0, description="Partitions that one run takes up.")
    max_query_seconds: float = Field(
        600, gt=0, description="Time in the source after which a run ends with the group in hand."
    )
    max_files: int = Field(
        20_000, gt=0, description="Files after which a run ends with the group in hand."
    )
    runs_in_flight: int = Field(
        4, gt=0, description="Runs of the sensor that may be unfinished, queued ones included."
    )
    model_port: int = Field(
        0, ge=0, lt=1 << 16, description="Where the model server listens; 0 is any free port."
    )
    hotel_partner_port: int = Field(
        0, ge=0, lt=1 << 16, description="Where the hotel partner listens; 0 is any free port."
    )
    tick_seconds: int = Field(
        4, gt=0, description="Least seconds between two ticks of a sensor; Dagster adds up to 5."
    )
    alert_webhook: str | None = Field(
        None,
        repr=False,  # it may hold a token
        pattern="^https?://",
        description="Gets every alert as JSON; alerts are logged in any case.",
    )
    subscribers: tuple[str, ...] = Field(
        (),
        repr=False,  # an address may hold a token
        description="Addresses, split by commas, that are told of released and retracted days.",
    )

    @field_validator("subscribers", mode="before")
    @classmethod
    def _addresses(cls, given: str | Sequence[str]) -> tuple[str, ...]:
        parts = given.split(",") if isinstance(given, str) else given
        addresses = tuple(part.strip() for part in parts if part.strip())
        for address in addresses:
            if not address.startswith(("http://", "https://")):
                raise ValueError("each address begins with http:// or https://")
        return addresses

    @field_validator("home", "store")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        """A relative folder means the same in every process: it starts at the project."""
        if path is None:
            return None
        if "".join(path.parts[:1]).endswith(":"):  # s3://bucket would become a folder "s3:"
            raise ValueError("give a folder of this machine, and no address of another kind")
        try:
            return PROJECT / path.expanduser()
        except RuntimeError:
            raise ValueError(f"{path.parts[0]} is nobody's home on this machine") from None

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the environment and the project's ``.env``, or what ``up`` handed on.

        Raises:
            SettingsError: a variable is malformed, unknown, or is set differently in both.
        """
        if HANDED_ON in environment:
            return cls._taken_over(environment[HANDED_ON])
        known = {PREFIX + name.upper() for name in cls.model_fields}
        found = _merged(environment, _env_file(environment), known)
        try:
            return cls.model_validate({k.removeprefix(PREFIX).lower(): v for k, v in found.items()})
        except ValidationError as error:
            first = error.errors()[0]
            field = str(first["loc"][0])
            name = PREFIX + field.upper()
            is_secret = not cls.model_fields[field].repr
            shown = "" if is_secret else f"; found {found.get(name)!r}"
            message = f"{name}: {first['msg']}{shown}"
            raise SettingsError(message) from None

    @classmethod
    def _taken_over(cls, text: str) -> Self:
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            message = f"{HANDED_ON} is of another version of this program; start `up` anew"
            raise SettingsError(message) from None

    def handed_on(self) -> dict[str, str]:
        """Return the variable with which a process started by this one has the same settings.

        Dagster's programs, but not its code server, put the ``.env`` of their folder over their
        environment, whatever BACKFILL_ENV_FILE says, and each as the file is when it starts.
        """
        return {HANDED_ON: self.model_dump_json()}

    @property
    def store_root(self) -> Path:
        """The folder of the committed files."""
        return self.store or self.home / "store"

    @property
    def known_stores(self) -> Path:
        """Where it is remembered which folders were stores before."""
        return self.home / "stores.json"

    @property
    def dagster_home(self) -> Path:
        """Where Dagster keeps what is not in its database."""
        return self.home / "dagster"

    @property
    def models(self) -> Path:
        """The folder of the trained models."""
        return self.home / "models"

    @property
    def model_server_address(self) -> Path:
        """The file that says where the model server listens."""
        return self.home / "model-server.json"

    @property
    def hotel_partner_address(self) -> Path:
        """The file that says where the hotel partner listens."""
        return self.home / "hotel-partner.json"

    @property
    def bounds(self) -> Bounds:
        """The four bounds of a cycle."""
        return Bounds(
            max_days=self.max_days,
            max_partitions=self.max_partitions,
            max_query_seconds=self.max_query_seconds,
            max_files=self.max_files,
        )


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Return this process's settings, read once."""
    return Settings.load()


@lru_cache(maxsize=1)
def server() -> PostgresServer:
    """Return the PostgreSQL server of this process's settings."""
    return postgres_server(settings().database_url, settings().home / "postgres")


def dagster_database_url() -> str:
    """Return the address of Dagster's database, which exists when this returns."""
    return _database_url(server().databases.dagster)


def ensure_dagster_database() -> None:
    """Make Dagster's database where it is not, also where somebody has thrown it away since."""
    server().ensure_database(server().databases.dagster)


def log_database_url() -> str:
    """Return the address of the project's own database, which outlives Dagster's."""
    return _database_url(server().databases.log)


def source_database_url() -> str:
    """Return the address of the database with the source's data."""
    return _database_url(server().databases.source)


def partner_database_url() -> str:
    """Return the address of the hotel partner's own database; only its server opens it."""
    # As long as the longest of the other names, whose length is checked.
    return _database_url(f"{server().databases.source}_partner")


_ensured: set[str] = set()


def _database_url(name: str) -> str:
    if name not in _ensured:
        server().ensure_database(name)
        _ensured.add(name)
    return server().url(name)


def _env_file(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the project's variables from ``.env`` beside ``pyproject.toml``.

    BACKFILL_ENV_FILE names another file, or none where it is empty.

    Raises:
        SettingsError: BACKFILL_ENV_FILE names a file that is not there, or the file is malformed.
    """
    named = environment.get(ENV_FILE)
    path = PROJECT / (".env" if named is None else named)
    if named and not path.is_file():
        message = f"{ENV_FILE}: there is no file {path}"
        raise SettingsError(message)
    values = values_in(path, PREFIX) if path.is_file() else {}
    return {k: v for k, v in values.items() if k.startswith(PREFIX) and v is not None}


def _merged(
    environment: Mapping[str, str], env_file: Mapping[str, str], known: set[str]
) -> dict[str, str]:
    """Return the variables of both; Dagster lets ``.env`` win and others do not, so none may.

    Raises:
        SettingsError: a variable is unknown, or is set differently in both.
    """
    own = {k: v for k, v in environment.items() if k.startswith(PREFIX)}
    own.pop(ENV_FILE, None)
    for name, value in env_file.items():
        if own.setdefault(name, value) != value:
            message = (
                f"{name} is set to one value in the environment and to another in .env; "
                "unset one, so that every process sees the same"
            )
            raise SettingsError(message)
    if ENV_FILE in own:
        message = f"{ENV_FILE} names the file itself, so it is no setting in one; remove it there"
        raise SettingsError(message)
    for name in sorted(own.keys() - known):
        message = f"{name} is no setting; there are {', '.join(sorted(known))}"
        raise SettingsError(message)
    return {name: value for name, value in own.items() if value.strip()}
