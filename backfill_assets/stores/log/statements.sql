-- What the log does to its tables. Every statement takes many keys at once, in the order of the
-- keys, so that two batches never wait for each other in a circle. Time comes in: no statement
-- asks the server for it.

-- name: limit_idle
-- Have the server end transactions of this connection in which nothing comes for so long.
SELECT set_config('idle_in_transaction_session_timeout', %(milliseconds)s, false);

-- name: read
-- Where operations stand, with the newest attempt of each. No row: nothing ever claimed it.
SELECT log.idempotency_key, log.operation_name, log.status, log.fingerprint, log.attempt,
       log.generation, log.spent, last.outcome, log.in_doubt, log.worker, log.lease_until,
       log.retry_at, log.result, log.sealed_reason, last.error_type, last.error_message,
       log.created_at, log.updated_at
  FROM idempotency_log AS log
  LEFT JOIN idempotency_attempt AS last USING (idempotency_key, operation_name, attempt)
 WHERE log.idempotency_key = ANY (%(keys)s)
   AND (%(operations)s::text[] IS NULL OR log.operation_name = ANY (%(operations)s))
 ORDER BY log.idempotency_key, log.created_at, log.operation_name;

-- name: read_results
-- What a duplicate needs to know, by the primary key alone. No row: nothing ever claimed it.
SELECT idempotency_key, status, fingerprint, attempt, sealed_at IS NOT NULL AS is_sealed, result
  FROM idempotency_log
 WHERE idempotency_key = ANY (%(keys)s) AND operation_name = %(operation)s;

-- name: read_open
-- Operations of a name that have failed or are at work, by the beginning of their keys.
SELECT log.idempotency_key, log.operation_name, log.status, log.fingerprint, log.attempt,
       log.generation, log.spent, last.outcome, log.in_doubt, log.worker, log.lease_until,
       log.retry_at, log.result, log.sealed_reason, last.error_type, last.error_message,
       log.created_at, log.updated_at
  FROM idempotency_log AS log
  LEFT JOIN idempotency_attempt AS last USING (idempotency_key, operation_name, attempt)
 WHERE log.operation_name = %(operation)s AND log.status <> 'COMPLETED'
   AND starts_with(log.idempotency_key, %(prefix)s)
 ORDER BY log.idempotency_key;

-- name: claim
-- Start an attempt of each operation that is new, has failed and may be tried again, or whose
-- owner's lease has run out. No row for a key: it is somebody else's, done, sealed, spent, or was
-- used for another payload.
WITH claimed AS (
    INSERT INTO idempotency_log AS known
           (idempotency_key, operation_name, kind, status, fingerprint, attempt, generation, spent,
            worker, lease_until, created_at, updated_at)
    SELECT key, %(operation)s, %(kind)s, 'PROCESSING', fingerprint, 1, 1, 1,
           %(worker)s, %(lease_until)s, %(now)s, %(now)s
      FROM unnest(%(keys)s::text[], %(fingerprints)s::text[]) AS asked (key, fingerprint)
     ORDER BY key
        ON CONFLICT (idempotency_key, operation_name) DO UPDATE
       SET status = 'PROCESSING',
           attempt = known.attempt + 1,
           spent = known.spent + 1,
           in_doubt = known.in_doubt OR known.status = 'PROCESSING',
           worker = excluded.worker,
           lease_until = excluded.lease_until,
           retry_at = NULL,
           updated_at = excluded.updated_at
     WHERE known.fingerprint = excluded.fingerprint
       AND known.sealed_at IS NULL
       AND (%(max_attempts)s::integer IS NULL OR known.spent < %(max_attempts)s)
       AND CASE known.status WHEN 'PROCESSING' THEN known.lease_until <= %(now)s
                             WHEN 'FAILED' THEN known.retry_at <= %(now)s
                             ELSE false END
    RETURNING idempotency_key, attempt, generation, spent, in_doubt
), ended AS (
    UPDATE idempotency_attempt AS last
       SET outcome = 'UNKNOWN', ended_at = %(now)s,
           note = 'its lease ran out, and ' || %(worker)s || ' took over'
      FROM claimed
     WHERE last.idempotency_key = claimed.idempotency_key
       AND last.operation_name = %(operation)s
       AND last.attempt = claimed.attempt - 1
       AND last.outcome = 'RUNNING'
), started AS (
    INSERT INTO idempotency_attempt
           (idempotency_key, operation_name, attempt, generation, worker, outcome, started_at)
    SELECT idempotency_key, %(operation)s, attempt, generation, %(worker)s, 'RUNNING', %(now)s
      FROM claimed
)
SELECT claimed.idempotency_key, claimed.attempt, claimed.generation, claimed.spent,
       claimed.in_doubt, last.worker, last.outcome, last.error_type, last.error_message, last.note
  FROM claimed
  LEFT JOIN idempotency_attempt AS last -- as it was before this statement
    ON claimed.attempt > 1
   AND last.idempotency_key = claimed.idempotency_key
   AND last.operation_name = %(operation)s
   AND last.attempt = claimed.attempt - 1;

-- name: complete
-- Store the results of the attempts that still own their operations. No row for a key: another
-- attempt owns it, or a seal; nothing of this one is stored.
WITH done AS (
    SELECT * FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(results)s::text[],
                         %(digests)s::text[]) AS done (key, attempt, result, digest)
), completed AS (
    UPDATE idempotency_log AS log
       SET status = 'COMPLETED', result = done.result::jsonb, in_doubt = false,
           lease_until = NULL, retry_at = NULL, updated_at = %(now)s
      FROM done
     WHERE log.idempotency_key = done.key AND log.operation_name = %(operation)s
       AND log.attempt = done.attempt
       AND log.status = 'PROCESSING' AND log.sealed_at IS NULL
    RETURNING log.idempotency_key, log.attempt, done.digest
), ended AS (
    UPDATE idempotency_attempt AS own
       SET outcome = 'SUCCEEDED', ended_at = %(now)s, result_digest = completed.digest
      FROM completed
     WHERE own.idempotency_key = completed.idempotency_key
       AND own.operation_name = %(operation)s
       AND own.attempt = completed.attempt
)
SELECT idempotency_key FROM completed;

-- name: fail
-- End attempts that did not succeed and still own their operations. No row for a key: another
-- attempt owns it, or a seal, and its row stays as it is.
WITH failed AS (
    SELECT * FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(retries)s::timestamptz[])
               AS failed (key, attempt, retry_at)
), ended_log AS (
    UPDATE idempotency_log AS log
       SET status = 'FAILED', in_doubt = log.in_doubt OR %(outcome)s = 'UNKNOWN',
           spent = log.spent - %(given_back)s, lease_until = NULL, retry_at = failed.retry_at,
           updated_at = %(now)s
      FROM failed
     WHERE log.idempotency_key = failed.key AND log.operation_name = %(operation)s
       AND log.attempt = failed.attempt AND log.status = 'PROCESSING'
    RETURNING log.idempotency_key, log.attempt
), ended AS (
    UPDATE idempotency_attempt AS own
       SET outcome = %(outcome)s, ended_at = %(now)s, error_type = %(error_type)s,
           error_message = %(error_message)s, error_trace = %(error_trace)s
      FROM ended_log
     WHERE own.idempotency_key = ended_log.idempotency_key
       AND own.operation_name = %(operation)s
       AND own.attempt = ended_log.attempt
)
SELECT idempotency_key FROM ended_log;

-- name: record_late
-- Write down attempts that came back when their operations were no longer theirs, and what they
-- wanted to store. The row of the operation is not touched. Gives those that had not been recorded,
-- with what stands committed instead.
WITH late AS (
    SELECT * FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(digests)s::text[])
               AS late (key, attempt, digest)
), fenced AS (
    UPDATE idempotency_attempt AS own
       SET outcome = 'FENCED', ended_at = %(now)s, result_digest = late.digest,
           error_type = coalesce(%(error_type)s, own.error_type),
           error_message = coalesce(%(error_message)s, own.error_message),
           error_trace = coalesce(%(error_trace)s, own.error_trace)
      FROM late
     WHERE own.idempotency_key = late.key AND own.operation_name = %(operation)s
       AND own.attempt = late.attempt AND own.outcome IN ('RUNNING', 'UNKNOWN')
    RETURNING own.idempotency_key, own.attempt, late.digest
)
SELECT fenced.idempotency_key, fenced.attempt, fenced.digest, winner.attempt, winner.result_digest
  FROM fenced
  JOIN idempotency_log AS log
    ON log.idempotency_key = fenced.idempotency_key AND log.operation_name = %(operation)s
  LEFT JOIN idempotency_attempt AS winner
    ON winner.idempotency_key = fenced.idempotency_key AND winner.operation_name = %(operation)s
   AND winner.attempt = log.attempt AND winner.outcome = 'SUCCEEDED';

-- name: renew
-- Give attempts that still own their operations a longer lease. No row for a key: they do not.
UPDATE idempotency_log AS log
   SET lease_until = %(lease_until)s, updated_at = %(now)s
  FROM unnest(%(keys)s::text[], %(attempts)s::integer[]) AS own (key, attempt)
 WHERE log.idempotency_key = own.key AND log.operation_name = %(operation)s
   AND log.attempt = own.attempt AND log.status = 'PROCESSING'
RETURNING log.idempotency_key;

-- name: settle
-- Let it be known of operations in doubt that none of their earlier attempts happened, or will.
UPDATE idempotency_log
   SET in_doubt = false
 WHERE idempotency_key = %(key)s AND operation_name = %(operation)s AND attempt = %(attempt)s;

-- name: disprove
-- Take back completions whose artifact is not there; the next attempt may start at once. No row for
-- a key: it is not completed, or by another attempt than the one that was looked at.
WITH false_claim AS (
    UPDATE idempotency_log AS log
       SET status = 'FAILED', spent = 0, retry_at = %(now)s, result = NULL, updated_at = %(now)s
      FROM unnest(%(keys)s::text[], %(attempts)s::integer[]) AS asked (key, attempt)
     WHERE log.idempotency_key = asked.key AND log.operation_name = %(operation)s
       AND log.attempt = asked.attempt AND log.status = 'COMPLETED' AND log.sealed_at IS NULL
    RETURNING log.idempotency_key, log.attempt
), noted AS (
    UPDATE idempotency_attempt AS own
       SET note = 'what it had made was not there any more'
      FROM false_claim
     WHERE own.idempotency_key = false_claim.idempotency_key
       AND own.operation_name = %(operation)s AND own.attempt = false_claim.attempt
)
SELECT idempotency_key FROM false_claim;

-- name: prove
-- Complete operations that have failed and whose artifact stands all the same, whoever made it.
UPDATE idempotency_log
   SET status = 'COMPLETED', in_doubt = false, retry_at = NULL, result = 'null',
       updated_at = %(now)s
 WHERE idempotency_key = ANY (%(keys)s) AND operation_name = %(operation)s
   AND status = 'FAILED' AND sealed_at IS NULL
RETURNING idempotency_key;

-- name: reopen
-- Open a new generation: attempts may start again, with another payload too. What the last one had
-- stored is kept with its attempt. No row for a key: it is at work, or it was sealed.
WITH reopened AS (
    UPDATE idempotency_log AS log
       SET status = 'FAILED', generation = log.generation + 1, spent = 0, in_doubt = false,
           fingerprint = asked.fingerprint, retry_at = %(now)s, result = NULL,
           updated_at = %(now)s
      FROM (SELECT known.idempotency_key, known.status, known.result, wanted.fingerprint
              FROM unnest(%(keys)s::text[], %(fingerprints)s::text[]) AS wanted (key, fingerprint)
              JOIN idempotency_log AS known
                ON known.idempotency_key = wanted.key AND known.operation_name = %(operation)s
             ORDER BY known.idempotency_key
               FOR UPDATE OF known) AS asked
     WHERE log.idempotency_key = asked.idempotency_key AND log.operation_name = %(operation)s
       AND log.status <> 'PROCESSING' AND log.sealed_at IS NULL
    RETURNING log.idempotency_key, log.attempt, asked.status AS old_status, asked.result
), kept AS (
    UPDATE idempotency_attempt AS own
       SET result = CASE WHEN reopened.old_status = 'COMPLETED' THEN reopened.result END,
           note = 'reopened: ' || %(reason)s
      FROM reopened
     WHERE own.idempotency_key = reopened.idempotency_key
       AND own.operation_name = %(operation)s AND own.attempt = reopened.attempt
)
SELECT idempotency_key FROM reopened;

-- name: seal
-- Let no attempt start or complete any more; a tombstone where none ever started. A completed one
-- stays completed. Gives what stood.
WITH sealed AS (
    INSERT INTO idempotency_log AS known
           (idempotency_key, operation_name, kind, status, fingerprint, attempt, generation, spent,
            worker, sealed_at, sealed_reason, created_at, updated_at)
    VALUES (%(key)s, %(operation)s, %(kind)s, 'FAILED', '', 0, 1, 0,
            %(worker)s, %(now)s, %(reason)s, %(now)s, %(now)s)
        ON CONFLICT (idempotency_key, operation_name) DO UPDATE
       SET status = CASE known.status WHEN 'COMPLETED' THEN 'COMPLETED' ELSE 'FAILED' END,
           in_doubt = known.in_doubt OR known.status = 'PROCESSING',
           lease_until = NULL,
           retry_at = NULL,
           sealed_at = coalesce(known.sealed_at, excluded.sealed_at),
           sealed_reason = coalesce(known.sealed_reason, excluded.sealed_reason),
           updated_at = excluded.updated_at
    RETURNING idempotency_key, status, attempt, in_doubt, result, sealed_reason
), ended AS (
    UPDATE idempotency_attempt AS last
       SET outcome = 'UNKNOWN', ended_at = %(now)s, note = 'sealed: ' || %(reason)s
      FROM sealed
     WHERE last.idempotency_key = sealed.idempotency_key AND last.operation_name = %(operation)s
       AND last.attempt = sealed.attempt AND last.outcome = 'RUNNING'
)
SELECT status, attempt, in_doubt, result, sealed_reason FROM sealed;

-- name: supervise
-- End attempts whose lease ran out before an instant: they are fenced from now on, and tried again.
WITH expired AS (
    SELECT idempotency_key, operation_name
      FROM idempotency_log
     WHERE status = 'PROCESSING' AND lease_until <= %(before)s
       AND (%(operations)s::text[] IS NULL OR operation_name = ANY (%(operations)s))
     ORDER BY idempotency_key, operation_name
       FOR UPDATE SKIP LOCKED
), ended_log AS (
    UPDATE idempotency_log AS log
       SET status = 'FAILED', in_doubt = true, lease_until = NULL, retry_at = %(now)s,
           updated_at = %(now)s
      FROM expired
     WHERE log.idempotency_key = expired.idempotency_key
       AND log.operation_name = expired.operation_name
    RETURNING log.idempotency_key, log.operation_name, log.attempt
), ended AS (
    UPDATE idempotency_attempt AS own
       SET outcome = 'UNKNOWN', ended_at = %(now)s, note = 'no sign of life until its lease ran out'
      FROM ended_log
     WHERE own.idempotency_key = ended_log.idempotency_key
       AND own.operation_name = ended_log.operation_name AND own.attempt = ended_log.attempt
       AND own.outcome = 'RUNNING'
)
SELECT idempotency_key, operation_name FROM ended_log ORDER BY 1, 2;

-- name: end_worker
-- End the attempts of a worker that is known to be dead: they are fenced from now on. It is not
-- their operations' fault, so each gives its part of the budget back.
WITH ended_log AS (
    UPDATE idempotency_log
       SET status = 'FAILED', in_doubt = true, spent = spent - 1, lease_until = NULL,
           retry_at = %(now)s, updated_at = %(now)s
     WHERE operation_name = %(operation)s AND status = 'PROCESSING' AND worker = %(worker)s
    RETURNING idempotency_key, operation_name, attempt
), ended AS (
    UPDATE idempotency_attempt AS own
       SET outcome = 'UNKNOWN', ended_at = %(now)s, note = 'its worker was found dead'
      FROM ended_log
     WHERE own.idempotency_key = ended_log.idempotency_key
       AND own.operation_name = ended_log.operation_name AND own.attempt = ended_log.attempt
       AND own.outcome = 'RUNNING'
)
SELECT idempotency_key FROM ended_log;

-- name: attempts
-- Every attempt at the operations of a key, oldest first.
SELECT operation_name, attempt, generation, worker, outcome, started_at, ended_at, error_type,
       error_message, error_trace, result_digest, result, note
  FROM idempotency_attempt
 WHERE idempotency_key = %(key)s
 ORDER BY operation_name, attempt;

-- name: late
-- Attempts of operations, by the beginning of their keys, that came back late and were fenced.
SELECT own.idempotency_key, own.operation_name, own.attempt, own.worker, own.ended_at,
       own.result_digest, winner.attempt, winner.result_digest
  FROM idempotency_attempt AS own
  JOIN idempotency_log AS log USING (idempotency_key, operation_name)
  LEFT JOIN idempotency_attempt AS winner
    ON winner.idempotency_key = own.idempotency_key
   AND winner.operation_name = own.operation_name AND winner.attempt = log.attempt
 WHERE own.outcome = 'FENCED' AND own.operation_name = ANY (%(operations)s)
   AND starts_with(own.idempotency_key, %(prefix)s)
 ORDER BY own.ended_at;

-- name: prune
-- Forget operations that ended before an instant, with their attempts; sealed ones too: keep rows
-- longer than anything late can be.
WITH forgotten AS (
    DELETE FROM idempotency_log
     WHERE updated_at < %(before)s AND status <> 'PROCESSING'
    RETURNING idempotency_key, operation_name
), forgotten_attempts AS (
    DELETE FROM idempotency_attempt AS own
     USING forgotten
     WHERE own.idempotency_key = forgotten.idempotency_key
       AND own.operation_name = forgotten.operation_name
)
SELECT count(*) FROM forgotten;
