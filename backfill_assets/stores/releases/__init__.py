"""Released days: their rows in PostgreSQL, their manifests beside the files, and who is told.

The rules are in ``core.releases`` and ``core.agreement``.
"""
