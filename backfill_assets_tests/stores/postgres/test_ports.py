"""Which port a server gets when others want it too."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from backfill_assets.stores.postgres.accounts import choose_account
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.errors import ServerStartError
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.locks import heritable
from backfill_assets.stores.postgres.ports import HOST, free_port, is_free, ports_to_try
from backfill_assets.stores.postgres.programs import find_programs
from backfill_assets.stores.postgres.server import start_server
from backfill_assets.stores.postgres.setup import ServerSetup
from backfill_assets_tests.stores.postgres.processes_of_tests import running_postmaster


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which someone listens."""
    with socket.create_server((HOST, 0)) as listening:
        yield listening.getsockname()[1]


def setup_of(folder: Path) -> ServerSetup:
    names, programs = ServerFolder(folder), find_programs()
    account = choose_account(names, programs)
    return ServerSetup(folder=names, programs=programs, account=account, durable=False)


def test_a_port_that_is_taken_between_the_look_and_the_start_is_given_up(
    folder: Path, taken: int
) -> None:
    setup, other = setup_of(folder), free_port()
    with heritable(setup.folder.server_lock, timeout_seconds=5) as lock:
        started = start_server(setup, lock=lock, ports=iter([taken, other]))
    assert started.port == other
    assert started.pid == running_postmaster(folder)


def test_when_every_port_is_taken_the_error_says_so(folder: Path, taken: int) -> None:
    setup = setup_of(folder)
    with (
        heritable(setup.folder.server_lock, timeout_seconds=5) as lock,
        pytest.raises(ServerStartError, match="every port that was free was taken"),
    ):
        start_server(setup, lock=lock, ports=iter([taken, taken]))


def test_the_last_port_is_not_tried_while_another_listens_there(
    server: EmbeddedPostgres, folder: Path, taken: int
) -> None:
    (folder / "port").write_text(f"{taken}\n")
    assert not is_free(taken)
    assert server.ensure_running().port != taken


@pytest.mark.parametrize("text", ["", "nonsense", "99999999", "\x00\xff"])
def test_a_spoiled_memory_of_the_last_port_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "port").write_text(text)
    assert all(1024 <= port < 65536 for port in ports_to_try(ServerFolder(tmp_path)))
