"""What one embedded server is made of, decided once and handed on."""

from dataclasses import dataclass

from backfill_assets.stores.postgres.accounts import Account
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.programs import Programs


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetup:
    """How an embedded server is made and started.

    Attributes:
        folder: Where everything of it lives.
        programs: The programs that run it.
        account: As whom they run.
        durable: Whether a commit survives a power cut. False is for tests.
    """

    folder: ServerFolder
    programs: Programs
    account: Account
    durable: bool
