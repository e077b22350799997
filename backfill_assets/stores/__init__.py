"""What survives a restart: files and PostgreSQL. Nothing here knows Dagster."""
