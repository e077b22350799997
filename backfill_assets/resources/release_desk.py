"""What a process needs to release days: opened with the project, connected when it is used."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.core.releases import RELEASE_DAY
from backfill_assets.resources.releases import Releasing
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.releases.actions import ReleaseActions
from backfill_assets.stores.releases.published import PublishedRows
from backfill_assets.stores.sagas.actions import SagaRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.store import PartitionStore
    from backfill_assets.resources.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDesk:
    """What a process needs to release days, besides its sagas; nothing is connected to yet."""

    actions: ReleaseActions
    log: IdempotencyLog
    clock: Callable[[], datetime]
    subscribers: Sequence[str] = ()


def open_release_desk(
    url: Callable[[], str],
    store: PartitionStore[Any],
    catalogues: Sequence[Catalogue],
    *,
    clock: Callable[[], datetime],
    subscribers: Sequence[str] = (),
) -> ReleaseDesk:
    """Return the desk of this process.

    Args:
        url: Gives the address of the log's database.
        clock: Gives the present real instant.
        subscribers: The addresses that are told of days.
    """
    worker = f"releases:{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    return ReleaseDesk(
        actions=ReleaseActions(store, catalogues, PublishedRows(url), clock),
        log=IdempotencyLog(url, worker=worker, clock=clock),
        clock=clock,
        subscribers=subscribers,
    )


def with_releases(registry: SagaRegistry, desk: ReleaseDesk) -> SagaRegistry:
    """Return the sagas of a deployment, and that of releasing days."""
    return SagaRegistry(
        definitions=[*registry.definitions, RELEASE_DAY],
        do={**registry.do, **desk.actions.do},
        undo={**registry.undo, **desk.actions.undo},
        verify=registry.verify,
    )


def releasing_of(project: Project) -> Releasing | None:
    """Return how a project releases its days, or None where it does not."""
    desk, sagas = project.release_desk, project.saga_desk
    if desk is None or sagas is None:
        return None
    return Releasing(
        project=project,
        sagas=sagas.sagas,
        log=desk.log,
        actions=desk.actions,
        clock=desk.clock,
        subscribers=desk.subscribers,
    )


def released_otherwise(project: Project, catalogue: Catalogue) -> dict[str, list[str]]:
    """Return where released rows and manifests differ from the files, by kind."""
    releasing = releasing_of(project)
    return {} if releasing is None else releasing.reconcile(catalogue).by_fault()
