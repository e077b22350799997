-- name: begin
-- Make sure that a target is known.
INSERT INTO alert_target (target, failures) VALUES (%(target)s, 0) ON CONFLICT DO NOTHING;

-- name: claim
-- Become the one who delivers to a target. No row: somebody else does, or it is not time yet.
UPDATE alert_target
   SET owner = %(owner)s, lease_until = %(lease_until)s
 WHERE target = %(target)s
   AND (lease_until IS NULL OR lease_until <= %(now)s)
   AND (retry_at IS NULL OR retry_at <= %(now)s)
RETURNING failures;

-- name: renew
-- Say that a target is still being served. No row: somebody else took over.
UPDATE alert_target SET lease_until = %(lease_until)s
 WHERE target = %(target)s AND owner = %(owner)s
RETURNING target;

-- name: finish
-- Let a target go; with an error it is left alone until retry_at.
UPDATE alert_target
   SET owner = NULL, lease_until = NULL, error = %(error)s, retry_at = %(retry_at)s,
       failures = CASE WHEN %(error)s::text IS NULL THEN 0 ELSE failures + 1 END
 WHERE target = %(target)s AND owner = %(owner)s;

-- name: pending
-- Alerts that have not reached a target, in order.
SELECT dedup_key, subject, body, raised_at FROM alert
 WHERE NOT EXISTS (SELECT FROM alert_delivery AS done
                    WHERE done.dedup_key = alert.dedup_key AND done.target = %(target)s)
 ORDER BY id
 LIMIT %(limit)s;

-- name: mark
-- Remember that an alert has reached a target.
INSERT INTO alert_delivery (dedup_key, target, delivered_at)
VALUES (%(dedup_key)s, %(target)s, %(now)s)
    ON CONFLICT DO NOTHING;
