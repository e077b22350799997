"""Dagster assets whose history completes itself: truth is the committed files."""
