"""What every folder of tests shares: a real PostgreSQL, one server for the whole session."""

pytest_plugins = ["backfill_assets_tests.postgres_fixtures"]
