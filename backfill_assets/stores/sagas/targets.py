"""Where alerts go: the log of the process, or a webhook. Another way is another small class."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from backfill_assets.core.errors import SettingsError

if TYPE_CHECKING:
    import logging

    from backfill_assets.stores.log.alerts import Alert

TIMEOUT_SECONDS = 10  # a tick of the sensor has a minute, and may deliver several


class AlertTarget(Protocol):
    """Somewhere that alerts are delivered to.

    Attributes:
        name: Stays the same for ever: what was delivered is remembered by it.
    """

    @property
    def name(self) -> str:
        """The target's name."""

    def deliver(self, alert: Alert) -> None:
        """Deliver an alert; it may come again, with the same ``dedup_key``.

        Whatever it raises says that it did not arrive, or is not known to have: it stays in the
        outbox.
        """


@dataclass(frozen=True, slots=True)
class LoggingTarget:
    """The log of the process that delivers."""

    logger: logging.Logger
    name: str = "logging"

    def deliver(self, alert: Alert) -> None:
        """Log the alert as an error."""
        self.logger.error(
            "%s [%s] %s", alert.subject, alert.dedup_key, json.dumps(alert.body, sort_keys=True)
        )


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """An address that gets alerts as JSON, with the deduplication key as ``Idempotency-Key``."""

    url: str
    name: str = "webhook"

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise SettingsError(f"webhook {self.url!r}: expected an address that begins with http")

    def deliver(self, alert: Alert) -> None:
        """Send the alert; any answer but 2xx means that it did not arrive."""
        content = {
            "dedup_key": alert.dedup_key,
            "subject": alert.subject,
            "raised_at": alert.raised_at.isoformat(),
            "body": alert.body,
        }
        request = urllib.request.Request(  # noqa: S310 - http or https, see above
            self.url,
            data=json.dumps(content).encode(),
            headers={"Content-Type": "application/json", "Idempotency-Key": alert.dedup_key},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):  # noqa: S310 - as above
            return
