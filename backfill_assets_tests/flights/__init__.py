"""Tests of the example business, on a real PostgreSQL that holds the real flights."""
