"""What jobs and assets have in common that a person launches: their forms, and errors in words."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.core.errors import BackfillAssetsError
from backfill_assets.stores.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Iterator


def form(op: str, **example: Any) -> dict[str, Any]:
    """Return what stands in the launchpad at first: a form to fill in, which does nothing as is."""
    return {"ops": {op: {"config": example}}}


@contextmanager
def errors_in_words() -> Iterator[None]:
    """Fail a run in a sentence, not a stack trace, where an error of ours says what to do.

    Retrying cannot help: a person, or the sensor, does what is said.
    """
    try:
        yield
    except (BackfillAssetsError, PostgresError) as error:
        raise dg.Failure(str(error), allow_retries=False) from None
