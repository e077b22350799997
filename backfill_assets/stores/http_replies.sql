-- name: lock
-- One process at a time makes the table, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('backfill_assets.http_replies', 0));

-- name: create
-- What a server answered under which key. Who deletes a row allows its request to be done again.
CREATE TABLE IF NOT EXISTS http_reply (
    service         text COLLATE "C" NOT NULL, -- servers may share a database
    idempotency_key text COLLATE "C" NOT NULL,
    fingerprint     text NOT NULL,             -- of the request
    status          integer NOT NULL,
    body            jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (service, idempotency_key)
);

-- name: begin
-- Whether this transaction is the only one at work on the key; until it ends, however it ends.
SELECT pg_try_advisory_xact_lock(hashtextextended(%(service)s || ' ' || %(key)s, 0));

-- name: read
-- What was answered. No row: the request was not done yet.
SELECT fingerprint, status, body
  FROM http_reply
 WHERE service = %(service)s AND idempotency_key = %(key)s;

-- name: keep
-- Keep an answer, in the transaction of what was done for it.
INSERT INTO http_reply (service, idempotency_key, fingerprint, status, body)
VALUES (%(service)s, %(key)s, %(fingerprint)s, %(status)s, %(body)s);

-- name: forget
-- Drop answers older than anything late can be.
DELETE FROM http_reply WHERE service = %(service)s AND created_at < %(before)s;
