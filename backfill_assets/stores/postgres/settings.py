"""The settings of an embedded server, each with its reason; given at each start, kept nowhere."""

import sys

from backfill_assets.stores.postgres.ports import HOST

SETTINGS = {
    "listen_addresses": HOST,
    # No socket file: nothing to clean up, and no path that must fit into 107 bytes.
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
    # Dagster opens a connection for each statement, from several processes at once.
    "max_connections": "100",
    # A laptop also has other things to do.
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "huge_pages": "off",
    # Short statements: compiling them, or sharing them out, costs more than it brings.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    # Nobody replicates this server.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # The log is for what a person must see.
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %d ",
}

# For tests, in which no power is cut. synchronous_commit stays on: without flushing it costs next
# to nothing, and without it a killed server loses its last commits, which tests kill it to see.
FAST_AND_LOOSE = {"fsync": "off", "full_page_writes": "off"}


# After a crash PostgreSQL flushes the whole cluster: at once 0.3 s, file by file 2.7 s.
QUICK_RECOVERY = {"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}


def server_arguments(*, port: int, durable: bool) -> list[str]:
    """Return the settings as arguments of `postgres`."""
    settings = SETTINGS | QUICK_RECOVERY | {"port": str(port)} | ({} if durable else FAST_AND_LOOSE)
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
