"""Sagas in PostgreSQL: what is stored of them, who drives them, and the alerts for people.

``sagas`` is the way in. The rules are in ``core``: ``sagas``, ``step_states``, ``saga_decisions``.
"""
