-- The tables of the idempotency log. They live in a database of their own, beside the sagas, so
-- that throwing Dagster's away costs nothing here.

-- name: lock
-- One process at a time makes or changes the tables, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('backfill_assets.log.schema', 0));

-- name: version
-- The version of the tables. No row: there are none yet.
SELECT max(version) FROM log_schema;

-- name: create_version
-- Which changes were made to the tables, and when.
CREATE TABLE IF NOT EXISTS log_schema (
    version integer PRIMARY KEY,
    made_at timestamptz NOT NULL DEFAULT now()
);

-- name: record_version
-- Say that a change is made.
INSERT INTO log_schema (version) VALUES (%(version)s);

-- name: version_1
-- One row for each operation, one for each attempt at it, and alerts on their way to people.
CREATE TABLE idempotency_log (
    idempotency_key text COLLATE "C" NOT NULL,
    operation_name  text COLLATE "C" NOT NULL,
    kind            text NOT NULL,
    status          text NOT NULL CHECK (status IN ('PROCESSING', 'COMPLETED', 'FAILED')),
    fingerprint     text NOT NULL,          -- of the payload; empty where a seal came first
    attempt         integer NOT NULL,       -- the fencing token; 0: sealed before the first
    generation      integer NOT NULL,
    spent           integer NOT NULL,       -- attempts since it was new, or reopened
    in_doubt        boolean NOT NULL DEFAULT false, -- an ended attempt may have happened
    worker          text NOT NULL,          -- for people; the token decides
    claim_id        uuid,                   -- of the call that started the attempt
    taken_from      text,                   -- the worker whose attempt this one replaced
    lease_until     timestamptz,            -- of a PROCESSING one
    retry_at        timestamptz,            -- of a FAILED one; null: not before it is reopened
    result          json,                   -- of a COMPLETED one, to the letter; null is one too
    sealed_at       timestamptz,
    sealed_reason   text,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    -- The key comes first: it is the index for lookups, and for everything known about one item.
    PRIMARY KEY (idempotency_key, operation_name)
);
-- Serves expired leases, and what has failed; what is completed, nearly all, is not in it.
CREATE INDEX idempotency_log_open ON idempotency_log (operation_name, status, lease_until)
 WHERE status <> 'COMPLETED';

CREATE TABLE idempotency_attempt (
    idempotency_key text COLLATE "C" NOT NULL,
    operation_name  text COLLATE "C" NOT NULL,
    attempt         integer NOT NULL,
    generation      integer NOT NULL,
    worker          text NOT NULL,
    claim_id        uuid,
    outcome         text NOT NULL
        CHECK (outcome IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'UNKNOWN', 'FENCED')),
    started_at      timestamptz NOT NULL,
    ended_at        timestamptz,
    error_type      text,
    error_message   text,
    error_trace     text,
    result_digest   text,  -- of what it stored, or wanted to store
    result          json,  -- what it had stored, once a later generation has replaced it
    note            text,  -- how another one ended it
    -- No foreign key: both rows are written by the same statements, and a check for each costs.
    PRIMARY KEY (idempotency_key, operation_name, attempt)
);
-- What came back late is looked at often, and there is little of it.
CREATE INDEX idempotency_attempt_fenced ON idempotency_attempt (operation_name, idempotency_key)
 WHERE outcome = 'FENCED';

CREATE TABLE alert (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dedup_key    text NOT NULL UNIQUE, -- the same however often it is raised or delivered
    subject      text NOT NULL,
    body         jsonb NOT NULL,
    raised_at    timestamptz NOT NULL
);
