"""Dagster adapters: configuration in; clock, database, store, IO manager and event log out."""
