"""What is booked, as it stands in the arguments of a step: a leg of the journey, or a stay.

A person may write these by hand, to have another hotel instead.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations
from datetime import UTC, date, datetime, time
from typing import Any, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from backfill_assets.core.errors import BookingRefusedError, ConflictError
from backfill_assets.core.operations import Json  # noqa: TC001

MAX_NIGHTS = 30


class _Booking(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    traveller: str = Field(min_length=1, max_length=100)
    as_if: AwareDatetime = Field(description="The traveller's own time when it is booked.")

    @classmethod
    def of(cls, arguments: Json) -> Self:
        """Return what is booked by a step with these arguments.

        Raises:
            BookingRefusedError: something is absent, unknown or malformed; names it.
        """
        try:
            return cls.model_validate(arguments)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the arguments"
            names = ", ".join(cls.model_fields)
            message = f"{where}: {first['msg']}; a booking has {names}"
            raise BookingRefusedError(message) from None

    @property
    def arguments(self) -> Json:
        """It as the arguments of a step."""
        found: Json = self.model_dump(mode="json")
        return found


class Leg(_Booking):
    """A seat in a flight."""

    flight: str = Field(description='Carrier and number; "made-up …" is no real one.')
    origin: str
    destination: str
    day: date


class Stay(_Booking):
    """A room in a hotel."""

    hotel: str
    city: str = Field(description="By the code of its airport.")
    first_night: date
    nights: int = Field(ge=1, le=MAX_NIGHTS)

    @property
    def sentence(self) -> str:
        """The nights in words."""
        return f"{self.nights} nights from {self.first_night} on"


def arrival(first_night: date) -> datetime:
    """Return from when on a room is the traveller's: 15:00 UTC of the first day."""
    return datetime.combine(first_night, time(15), tzinfo=UTC)


def facts(row: Mapping[str, Any]) -> dict[str, Json]:
    """Return a row as JSON that is the same in every session."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Json:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value.isoformat() if isinstance(value, date) else value


def changes(wrote: Mapping[str, Json], row: Mapping[str, Any]) -> bool:
    """Return whether a booking is not as it was written down, or is booked no more."""
    found = facts(row)
    return found["state"] != "booked" or any(found.get(k) != v for k, v in wrote.items())


def conflict(what: str, wrote: Mapping[str, Json], row: Mapping[str, Any] | None) -> ConflictError:
    """Return what an undo raises that met a change by somebody else."""
    said = "is gone" if row is None else "was changed by somebody else"
    found: Json = None if row is None else facts(row)
    evidence: Json = {"wrote": dict(wrote), "found": found}
    return ConflictError(f"{what} {said} and is left alone", evidence)
