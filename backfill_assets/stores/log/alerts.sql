-- Alerts wait in a table of their own until somebody delivers them.

-- name: write
-- Raise an alert once, however often its cause is met.
INSERT INTO alert (dedup_key, subject, body, raised_at)
VALUES (%(dedup_key)s, %(subject)s, %(body)s, %(now)s)
    ON CONFLICT (dedup_key) DO NOTHING;

-- name: read
-- Every alert whose deduplication key begins so, oldest first.
SELECT dedup_key, subject, body, raised_at
  FROM alert
 WHERE starts_with(dedup_key, %(prefix)s)
 ORDER BY id;
