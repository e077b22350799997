"""Telling subscribers over HTTP that a day was released, or retracted.

Each gets a POST with JSON and an ``Idempotency-Key`` that is the same in every attempt, so that a
call whose answer was lost can be repeated. A retraction names the key of the release it retracts:
a release that arrives after its retraction is to be ignored.
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.core.errors import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from backfill_assets.core.operations import Json

LONGEST_CALL_SECONDS = 10.0  # a step has a minute, and there may be several subscribers


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What is told, and under which key."""

    idempotency_key: str
    body: Mapping[str, Json]


def tell(subscribers: Sequence[str], notice: Notice, time_left: timedelta) -> int:
    """Tell every subscriber; return how many there are.

    Those that do not answer keep no other from being told.

    Args:
        time_left: No call outlives it.

    Raises:
        ReleaseError: one or more did not confirm; they, and the others, may have been told.
    """
    if not subscribers:
        return 0
    seconds = min(time_left.total_seconds() / len(subscribers), LONGEST_CALL_SECONDS)
    failed = []
    for url in subscribers:
        try:
            _post(url, notice, max(seconds, 0.1))
        except (OSError, ValueError) as error:  # URLError and timeouts are OSErrors
            failed.append(f"{url}: {error}")
    if failed:
        message = f"{len(failed)} of {len(subscribers)} subscribers did not confirm: "
        raise ReleaseError(message + "; ".join(failed))
    return len(subscribers)


def _post(url: str, notice: Notice, seconds: float) -> None:
    request = urllib.request.Request(  # noqa: S310 - http or https; checked with the settings
        url,
        data=json.dumps(notice.body).encode(),
        headers={
            "Content-Type": "application/json",
            "Idempotency-Key": notice.idempotency_key,
        },
    )
    with urllib.request.urlopen(request, timeout=seconds):  # noqa: S310 - as above
        return
