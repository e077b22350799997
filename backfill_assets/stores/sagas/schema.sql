-- name: lock
-- One process at a time makes the tables, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('backfill_assets.sagas.schema', 0));

-- name: version
-- The version of the tables. No row: there are none yet.
SELECT max(version) FROM saga_schema;

-- name: create_version
-- Which changes were made to the tables, and when.
CREATE TABLE IF NOT EXISTS saga_schema (
    version integer PRIMARY KEY,
    made_at timestamptz NOT NULL DEFAULT now()
);

-- name: record_version
-- Say that a change is made.
INSERT INTO saga_schema (version) VALUES (%(version)s);

-- name: saga
-- A saga, stored before anything happens. How far its steps are is not here: see idempotency_log.
CREATE TABLE saga (
    saga_id          text PRIMARY KEY,   -- name/key; the idempotency key of all its operations
    name             text NOT NULL,
    key              text NOT NULL,
    plan             jsonb NOT NULL,     -- definition, arguments, and what people decided
    fingerprint      text NOT NULL,      -- of the arguments it was started with
    status           text NOT NULL CHECK (status IN
        ('RUNNING', 'COMPENSATING', 'AWAITING_DECISION', 'COMPLETED', 'COMPENSATED')),
    version          bigint NOT NULL,    -- raised by every change: who writes with an old one is late
    is_turned_back   boolean NOT NULL,   -- from there on no step can be done any more
    owner            text,
    due_at           timestamptz,        -- end of the lease, or the timer: when anyone may take it up
    question         jsonb,
    lock_wait_since  timestamptz,
    faults           integer NOT NULL,   -- times in a row that driving it broke off
    fault            text,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    -- Nothing sleeps for ever: a saga that moves has an instant, and one that waits has a question.
    CHECK ((status IN ('RUNNING', 'COMPENSATING')) = (due_at IS NOT NULL)),
    CHECK ((status = 'AWAITING_DECISION') = (question IS NOT NULL))
);

-- name: saga_due
-- Serves the supervisor, and those who ask what is open.
CREATE INDEX saga_due ON saga (due_at) WHERE due_at IS NOT NULL;

-- name: saga_journal
-- Who changed the state of a saga, when and why; written in the transaction of the change.
CREATE TABLE saga_journal (
    saga_id  text NOT NULL REFERENCES saga ON DELETE CASCADE,
    version  bigint NOT NULL,            -- that the change led to
    event    text NOT NULL,
    who      text NOT NULL,
    why      text NOT NULL,
    detail   jsonb NOT NULL,
    at       timestamptz NOT NULL,
    PRIMARY KEY (saga_id, version)
);

-- name: saga_lock
-- A resource that a saga works on. A row whose time is over holds nothing.
CREATE TABLE saga_lock (
    resource     text PRIMARY KEY,
    saga_id      text NOT NULL REFERENCES saga ON DELETE CASCADE,
    acquired_at  timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL
);

-- name: saga_lock_holder
-- Serves letting go of all that a saga holds.
CREATE INDEX saga_lock_holder ON saga_lock (saga_id);

-- name: keep_operations
-- Without its operations nobody knows what a saga has done: they are forgotten with it, not before.
CREATE FUNCTION saga_keeps_its_operations() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM saga WHERE saga_id = OLD.idempotency_key) THEN
        RETURN NULL;  -- the row stays, and the statement goes on
    END IF;
    RETURN OLD;
END $$;

-- name: keep_operations_trigger
-- Has the log ask before it forgets an operation.
CREATE TRIGGER saga_keeps_its_operations BEFORE DELETE ON idempotency_log
   FOR EACH ROW EXECUTE FUNCTION saga_keeps_its_operations();

-- name: alert_target
-- Who is delivering to a target, and since when it refuses.
CREATE TABLE alert_target (
    target       text PRIMARY KEY,
    owner        text,
    lease_until  timestamptz,
    failures     integer NOT NULL,       -- in a row
    error        text,
    retry_at     timestamptz
);

-- name: alert_delivery
-- Which alert has reached which target; none: it is still to be delivered.
CREATE TABLE alert_delivery (
    dedup_key     text NOT NULL,
    target        text NOT NULL,
    delivered_at  timestamptz NOT NULL,
    PRIMARY KEY (dedup_key, target)
);
