"""The idempotency log on PostgreSQL: at most one effect for a key and a step, whoever is late.

`log.IdempotencyLog` is where callers start. Nothing here knows what the operations do.
"""
