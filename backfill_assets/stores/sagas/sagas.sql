-- name: insert
-- Store a new saga, due at once. No row: there is one of that id.
INSERT INTO saga (saga_id, name, key, plan, fingerprint, status, version, is_turned_back, due_at,
                  faults, created_at, updated_at)
VALUES (%(saga_id)s, %(name)s, %(key)s, %(plan)s, %(fingerprint)s, 'RUNNING', 1, false, %(now)s,
        0, %(now)s, %(now)s)
    ON CONFLICT (saga_id) DO NOTHING
RETURNING *;

-- name: get
-- One saga. No row: there is none of that id.
SELECT * FROM saga WHERE saga_id = %(saga_id)s;

-- name: find
-- Sagas of a name and of some states, the newest first; all where neither is given.
SELECT * FROM saga
 WHERE (%(name)s::text IS NULL OR name = %(name)s)
   AND (cardinality(%(statuses)s::text[]) = 0 OR status = ANY (%(statuses)s))
 ORDER BY created_at DESC, saga_id
 LIMIT %(limit)s;

-- name: due
-- Sagas that anyone may take up now, the longest waiting first.
SELECT * FROM saga WHERE due_at <= %(now)s ORDER BY due_at, saga_id LIMIT %(limit)s;

-- name: claim
-- Take a saga up. No row: it is not due, it is at its end, or somebody else was first.
UPDATE saga
   SET owner = %(owner)s, due_at = %(due_at)s, version = version + 1, updated_at = %(now)s
 WHERE saga_id = %(saga_id)s AND due_at <= %(now)s
RETURNING *;

-- name: advance
-- Change the state of a saga that nobody else has changed meanwhile. No row: somebody has.
UPDATE saga
   SET status = %(status)s, plan = %(plan)s, is_turned_back = %(is_turned_back)s,
       owner = %(owner)s, due_at = %(due_at)s, question = %(question)s,
       lock_wait_since = %(lock_wait_since)s, faults = %(faults)s, fault = %(fault)s,
       version = version + 1, updated_at = %(now)s
 WHERE saga_id = %(saga_id)s AND version = %(version)s
RETURNING *;

-- name: note_fault
-- Count one more time that its owner broke off driving a saga, and put it off. No row: it is
-- somebody else's by now.
UPDATE saga
   SET faults = faults + 1, fault = %(fault)s, owner = NULL, due_at = %(due_at)s,
       version = version + 1, updated_at = %(now)s
 WHERE saga_id = %(saga_id)s AND owner = %(owner)s AND due_at IS NOT NULL
RETURNING *;

-- name: write_journal
-- Say who changed a saga and why.
INSERT INTO saga_journal (saga_id, version, event, who, why, detail, at)
VALUES (%(saga_id)s, %(version)s, %(event)s, %(who)s, %(why)s, %(detail)s, %(now)s);

-- name: journal
-- All that was decided about a saga, in order.
SELECT version, event, who, why, detail, at
  FROM saga_journal WHERE saga_id = %(saga_id)s ORDER BY version;

-- name: prune
-- Forget sagas that have been at their end since before an instant, with their journals.
DELETE FROM saga
 WHERE status IN ('COMPLETED', 'COMPENSATED') AND updated_at < %(before)s
RETURNING saga_id;
