-- name: lock_all
-- Take, or extend, all of these resources in sorted order. Rows: what this saga holds by now;
-- fewer than asked for: somebody else holds the rest, and the caller rolls back.
INSERT INTO saga_lock AS held (resource, saga_id, acquired_at, expires_at)
SELECT resource, %(saga_id)s, %(now)s, %(expires_at)s
  FROM unnest(%(resources)s::text[]) AS resource
 ORDER BY resource
    ON CONFLICT (resource) DO UPDATE
   SET saga_id = excluded.saga_id,
       acquired_at = CASE WHEN held.saga_id = excluded.saga_id AND held.expires_at > %(now)s
                          THEN held.acquired_at ELSE excluded.acquired_at END,
       expires_at = excluded.expires_at
 WHERE held.saga_id = excluded.saga_id OR held.expires_at <= %(now)s
RETURNING resource;

-- name: keep_until_commit
-- Hold a saga's locks on these against takeover until this transaction ends. Rows: those it holds.
SELECT resource FROM saga_lock
 WHERE saga_id = %(saga_id)s AND resource = ANY (%(resources)s) AND expires_at > %(now)s
 ORDER BY resource
   FOR SHARE;

-- name: release
-- Let go of all that a saga holds.
DELETE FROM saga_lock WHERE saga_id = %(saga_id)s;

-- name: holders
-- Who holds which of these resources, and until when.
SELECT resource, saga_id, acquired_at, expires_at FROM saga_lock
 WHERE (resource = ANY (%(resources)s) OR saga_id = %(saga_id)s) AND expires_at > %(now)s
 ORDER BY resource;
