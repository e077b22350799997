"""PostgreSQL for this project: one that comes with it, or the one that the user names.

`servers` is where callers start. Nothing in this package knows what the databases contain.
"""
