-- What the log does to its tables. Every statement takes many keys at once, in the order of the
-- keys, so that two batches never wait for each other in a circle. Time comes in: no statement
-- asks the server for it.

-- name: pin_plans
-- Have this connection look every key up by the primary key, in the order in which keys are given:
-- right for one key and for thousands, whatever the server believes about tables that it has not
-- looked at for a while. For the same reason an operation's name comes from a MATERIALIZED row, and
-- a status is compared by IS NOT DISTINCT FROM: no other index is tempting then.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false),
       set_config('plan_cache_mode', 'force_generic_plan', false);

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
            worker, claim_id, lease_until, created_at, updated_at)
    SELECT key, %(operation)s, %(kind)s, 'PROCESSING', fingerprint, 1, 1, 1,
           %(worker)s, %(claim)s, %(lease_until)s, %(now)s, %(now)s
      FROM unnest(%(keys)s::text[], %(fingerprints)s::text[]) AS asked (key, fingerprint)
     ORDER BY key COLLATE "C"
        ON CONFLICT (idempotency_key, operation_name) DO UPDATE
       SET status = 'PROCESSING',
           attempt = known.attempt + 1,
           spent = known.spent + 1,
           in_doubt = known.in_doubt OR known.status = 'PROCESSING',
           taken_from = CASE known.status WHEN 'PROCESSING' THEN known.worker END,
           worker = excluded.worker,
           claim_id = excluded.claim_id,
           lease_until = excluded.lease_until,
           retry_at = NULL,
           updated_at = excluded.updated_at
     WHERE known.fingerprint = excluded.fingerprint
       AND known.sealed_at IS NULL
       AND (%(max_attempts)s::integer IS NULL OR known.spent < %(max_attempts)s)
       AND CASE known.status WHEN 'PROCESSING' THEN known.lease_until <= %(now)s
                             WHEN 'FAILED' THEN known.retry_at <= %(now)s
                             ELSE false END
    RETURNING idempotency_key, attempt, generation, spent, in_doubt, taken_from
), ended AS (
    -- Not UPDATE: it would not see an attempt that began after this statement, which then waited.
    INSERT INTO idempotency_attempt AS last
           (idempotency_key, operation_name, attempt, generation, worker, outcome, started_at)
    SELECT idempotency_key, %(operation)s, attempt - 1, generation, taken_from, 'UNKNOWN', %(now)s
      FROM claimed
     WHERE taken_from IS NOT NULL
        ON CONFLICT (idempotency_key, operation_name, attempt) DO UPDATE
       SET outcome = 'UNKNOWN', ended_at = %(now)s,
           note = 'its lease ran out, and ' || %(worker)s || ' took over'
     WHERE last.outcome = 'RUNNING'
), started AS (
    INSERT INTO idempotency_attempt
           (idempotency_key, operation_name, attempt, generation, worker, claim_id, outcome,
            started_at)
    SELECT idempotency_key, %(operation)s, attempt, generation, %(worker)s, %(claim)s, 'RUNNING',
           %(now)s
      FROM claimed
)
SELECT idempotency_key, attempt, generation, spent, in_doubt, taken_from FROM claimed;

-- name: claimed
-- What one call has claimed, where its answer was lost. No row for a key: it was not granted.
SELECT idempotency_key, attempt, generation, spent, in_doubt, taken_from
  FROM idempotency_log
 WHERE idempotency_key = ANY (%(keys)s) AND operation_name = %(operation)s
   AND claim_id = %(claim)s AND status = 'PROCESSING';

-- name: ends
-- How the given attempts ended.
SELECT own.idempotency_key, own.attempt, own.outcome, own.error_type, own.error_message, own.note
  FROM unnest(%(keys)s::text[], %(attempts)s::integer[]) AS asked (key, attempt)
  JOIN idempotency_attempt AS own
    ON own.idempotency_key = asked.key AND own.operation_name = %(operation)s
   AND own.attempt = asked.attempt;

-- name: stand
-- Whose operations are, once those who are changing them have finished, and let nobody change them
-- until the end of the transaction.
SELECT idempotency_key, attempt, claim_id, status
  FROM idempotency_log
 WHERE idempotency_key = ANY (%(keys)s) AND operation_name = %(operation)s
 ORDER BY idempotency_key
   FOR SHARE;

-- name: complete
-- Store the results of the attempts that still own their operations. No row for an attempt: another
-- one owns its operation, or a seal; nothing of this one is stored.
WITH done AS MATERIALIZED (
    SELECT %(operation)s::text AS operation, done.*
      FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(claims)s::uuid[],
                  %(results)s::text[], %(digests)s::text[])
        AS done (key, attempt, claim, result, digest)
), completed AS (
    UPDATE idempotency_log AS log
       SET status = 'COMPLETED', result = done.result::json, in_doubt = false,
           lease_until = NULL, retry_at = NULL, updated_at = %(now)s
      FROM done
     WHERE log.idempotency_key = done.key AND log.operation_name = done.operation
       AND log.attempt = done.attempt AND log.claim_id = done.claim
       AND log.status IS NOT DISTINCT FROM 'PROCESSING' AND log.sealed_at IS NULL
    RETURNING log.idempotency_key, log.operation_name, log.attempt, done.digest
), ended AS (
    UPDATE idempotency_attempt AS own
       SET outcome = 'SUCCEEDED', ended_at = %(now)s, result_digest = completed.digest
      FROM completed
     WHERE own.idempotency_key = completed.idempotency_key
       AND own.operation_name = completed.operation_name
       AND own.attempt = completed.attempt
)
SELECT idempotency_key, attempt FROM completed;

-- name: completed
-- The given attempts whose results are stored: by a call of theirs whose answer was lost. No row
-- for an attempt: it has not completed.
SELECT own.idempotency_key, own.attempt
  FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(claims)s::uuid[])
    AS asked (key, attempt, claim)
  JOIN idempotency_attempt AS own
    ON own.idempotency_key = asked.key AND own.operation_name = %(operation)s
   AND own.attempt = asked.attempt AND own.claim_id = asked.claim
 WHERE own.outcome = 'SUCCEEDED';

-- name: fail
-- End attempts that did not succeed and still own their operations. No row for an attempt: another
-- one owns its operation, or a seal, and its row stays as it is.
WITH failed AS MATERIALIZED (
    SELECT %(operation)s::text AS operation, failed.*
      FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(claims)s::uuid[],
                  %(retries)s::timestamptz[]) AS failed (key, attempt, claim, retry_at)
), ended_log AS (
    UPDATE idempotency_log AS log
       SET status = 'FAILED', in_doubt = log.in_doubt OR %(outcome)s = 'UNKNOWN',
           spent = log.spent - %(given_back)s, lease_until = NULL, retry_at = failed.retry_at,
           updated_at = %(now)s
      FROM failed
     WHERE log.idempotency_key = failed.key AND log.operation_name = failed.operation
       AND log.attempt = failed.attempt AND log.claim_id = failed.claim
       AND log.status IS NOT DISTINCT FROM 'PROCESSING'
    RETURNING log.idempotency_key, log.operation_name, log.attempt
), ended AS (
    UPDATE idempotency_attempt AS own
       SET outcome = %(outcome)s, ended_at = %(now)s, error_type = %(error_type)s,
           error_message = %(error_message)s, error_trace = %(error_trace)s
      FROM ended_log
     WHERE own.idempotency_key = ended_log.idempotency_key
       AND own.operation_name = ended_log.operation_name
       AND own.attempt = ended_log.attempt
)
SELECT idempotency_key, attempt FROM ended_log;

-- name: failed
-- The given attempts that have said why they failed: in a call of theirs whose answer was lost. No
-- row for an attempt: another ended it, or it completed.
SELECT own.idempotency_key, own.attempt
  FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(claims)s::uuid[])
    AS asked (key, attempt, claim)
  JOIN idempotency_attempt AS own
    ON own.idempotency_key = asked.key AND own.operation_name = %(operation)s
   AND own.attempt = asked.attempt AND own.claim_id = asked.claim
 WHERE own.outcome IN ('FAILED', 'UNKNOWN') AND own.error_type IS NOT NULL;

-- name: record_late
-- Write down attempts that came back when their operations were no longer theirs, and what they
-- wanted to store. The row of the operation is not touched. Gives those that had not been recorded,
-- with what stands committed instead.
WITH fenced AS (
    UPDATE idempotency_attempt AS own
       SET outcome = 'FENCED', ended_at = %(now)s, result_digest = late.digest,
           error_type = coalesce(%(error_type)s, own.error_type),
           error_message = coalesce(%(error_message)s, own.error_message),
           error_trace = coalesce(%(error_trace)s, own.error_trace)
      FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(claims)s::uuid[],
                  %(digests)s::text[]) AS late (key, attempt, claim, digest)
     WHERE own.idempotency_key = late.key AND own.operation_name = %(operation)s
       AND own.attempt = late.attempt AND own.claim_id = late.claim
       AND own.outcome IN ('RUNNING', 'UNKNOWN')
    RETURNING own.*
)
SELECT fenced.idempotency_key, fenced.operation_name, fenced.attempt, fenced.worker,
       fenced.ended_at, fenced.result_digest, winner.attempt, winner.result_digest
  FROM fenced
  LEFT JOIN LATERAL (
       SELECT attempt, result_digest
         FROM idempotency_attempt AS other
        WHERE other.idempotency_key = fenced.idempotency_key
          AND other.operation_name = fenced.operation_name
          AND other.generation = fenced.generation AND other.outcome = 'SUCCEEDED'
        ORDER BY attempt DESC
        LIMIT 1) AS winner ON true;

-- name: differing
-- Attempts that were fenced before the given ones completed, and wanted to store something else.
SELECT late.idempotency_key, late.operation_name, late.attempt, late.worker, late.ended_at,
       late.result_digest, own.attempt, own.result_digest
  FROM unnest(%(keys)s::text[], %(attempts)s::integer[]) AS asked (key, attempt)
  JOIN idempotency_attempt AS own
    ON own.idempotency_key = asked.key AND own.operation_name = %(operation)s
   AND own.attempt = asked.attempt AND own.outcome = 'SUCCEEDED'
  JOIN idempotency_attempt AS late
    ON late.idempotency_key = asked.key AND late.operation_name = %(operation)s
   AND late.generation = own.generation AND late.outcome = 'FENCED'
   AND late.result_digest <> own.result_digest;

-- name: renew
-- Give attempts that still own their operations a longer lease. No row for an attempt: it does not.
WITH own AS MATERIALIZED (
    SELECT %(operation)s::text AS operation, own.*
      FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(claims)s::uuid[])
        AS own (key, attempt, claim)
)
UPDATE idempotency_log AS log
   SET lease_until = %(lease_until)s, updated_at = %(now)s
  FROM own
 WHERE log.idempotency_key = own.key AND log.operation_name = own.operation
   AND log.attempt = own.attempt AND log.claim_id = own.claim AND log.status IS NOT DISTINCT FROM 'PROCESSING'
RETURNING log.idempotency_key, log.attempt;

-- name: settle
-- Let it be known of an operation in doubt that none of its earlier attempts happened, or will. No
-- row: the attempt that found it out owns the operation no more, and may be in doubt itself.
UPDATE idempotency_log
   SET in_doubt = false, updated_at = %(now)s
 WHERE idempotency_key = %(key)s AND operation_name = %(operation)s
   AND attempt = %(attempt)s AND claim_id = %(claim)s AND status = 'PROCESSING'
RETURNING idempotency_key;

-- name: disprove
-- Take back completions whose artifact is not there; the next attempt may start at once. No row for
-- a key: it is not completed, or by another attempt than the one that was looked at.
WITH asked AS (
    SELECT log.idempotency_key, looked_at.attempt
      FROM unnest(%(keys)s::text[], %(attempts)s::integer[]) AS looked_at (key, attempt)
      JOIN idempotency_log AS log
        ON log.idempotency_key = looked_at.key AND log.operation_name = %(operation)s
     ORDER BY log.idempotency_key
       FOR UPDATE OF log
), false_claim AS (
    UPDATE idempotency_log AS log
       SET status = 'FAILED', spent = 0, retry_at = %(now)s, result = NULL, updated_at = %(now)s
      FROM asked
     WHERE log.idempotency_key = asked.idempotency_key AND log.operation_name = %(operation)s
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
WITH proved AS (
    UPDATE idempotency_log AS log
       SET status = 'COMPLETED', in_doubt = false, retry_at = NULL, result = 'null',
           updated_at = %(now)s
      FROM (SELECT idempotency_key
              FROM idempotency_log
             WHERE idempotency_key = ANY (%(keys)s) AND operation_name = %(operation)s
             ORDER BY idempotency_key
               FOR UPDATE) AS asked
     WHERE log.idempotency_key = asked.idempotency_key AND log.operation_name = %(operation)s
       AND log.status = 'FAILED' AND log.sealed_at IS NULL
    RETURNING log.idempotency_key, log.attempt
), noted AS (
    UPDATE idempotency_attempt AS own
       SET note = coalesce(own.note || '; ', '') || 'what it was to make stands all the same'
      FROM proved
     WHERE own.idempotency_key = proved.idempotency_key
       AND own.operation_name = %(operation)s AND own.attempt = proved.attempt
)
SELECT idempotency_key FROM proved;

-- name: correct
-- Store what artifacts were found to be instead of what their operations had stored, which is kept
-- with the attempt. No row for a key: it is not completed, or by another attempt than the one that
-- was looked at.
WITH asked AS (
    SELECT log.idempotency_key, found.attempt, found.result, log.result AS stored
      FROM unnest(%(keys)s::text[], %(attempts)s::integer[], %(results)s::text[])
        AS found (key, attempt, result)
      JOIN idempotency_log AS log
        ON log.idempotency_key = found.key AND log.operation_name = %(operation)s
     ORDER BY log.idempotency_key
       FOR UPDATE OF log
), corrected AS (
    UPDATE idempotency_log AS log
       SET result = asked.result::json, updated_at = %(now)s
      FROM asked
     WHERE log.idempotency_key = asked.idempotency_key AND log.operation_name = %(operation)s
       AND log.attempt = asked.attempt AND log.status = 'COMPLETED' AND log.sealed_at IS NULL
       AND log.result::text <> asked.result -- twice is once: what is kept is the old one
    RETURNING log.idempotency_key, log.attempt, asked.stored
), kept AS (
    UPDATE idempotency_attempt AS own
       -- What it had stored itself, however often it is corrected.
       SET result = coalesce(own.result, corrected.stored),
           note = coalesce(own.note || '; ', '') || 'corrected: ' || %(reason)s
      FROM corrected
     WHERE own.idempotency_key = corrected.idempotency_key
       AND own.operation_name = %(operation)s AND own.attempt = corrected.attempt
)
SELECT idempotency_key FROM corrected;

-- name: reopen
-- Let attempts start again, with another payload too; where something was completed, or another
-- payload is asked for, in a new generation. What the last one had stored is kept with its attempt.
-- No row for a key: it is at work, it was sealed, or it is not any more as it was looked at; so that
-- reopening twice is reopening once.
WITH reopened AS (
    UPDATE idempotency_log AS log
       SET status = 'FAILED',
           generation = log.generation + CASE WHEN known.status = 'COMPLETED'
                                                OR known.fingerprint <> asked.fingerprint
                                              THEN 1 ELSE 0 END,
           spent = 0,
           in_doubt = log.in_doubt AND NOT %(is_settled)s,
           fingerprint = asked.fingerprint, retry_at = %(now)s, result = NULL,
           updated_at = %(now)s
      FROM unnest(%(keys)s::text[], %(fingerprints)s::text[], %(attempts)s::integer[],
                  %(generations)s::integer[], %(statuses)s::text[])
             AS asked (key, fingerprint, attempt, generation, status)
      JOIN idempotency_log AS known
        ON known.idempotency_key = asked.key AND known.operation_name = %(operation)s
     WHERE log.idempotency_key = asked.key AND log.operation_name = %(operation)s
       AND log.attempt = asked.attempt AND log.generation = asked.generation
       AND log.status = asked.status AND log.status <> 'PROCESSING' AND log.sealed_at IS NULL
    RETURNING log.idempotency_key, log.attempt, known.result
), kept AS (
    UPDATE idempotency_attempt AS own
       SET result = coalesce(reopened.result, own.result), note = 'reopened: ' || %(reason)s
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
    RETURNING idempotency_key, status, attempt, generation, worker, in_doubt, result, sealed_reason
), ended AS (
    -- Not UPDATE, as in claim.
    INSERT INTO idempotency_attempt AS last
           (idempotency_key, operation_name, attempt, generation, worker, outcome, started_at)
    SELECT idempotency_key, %(operation)s, attempt, generation, worker, 'UNKNOWN', %(now)s
      FROM sealed
     WHERE attempt > 0 AND status = 'FAILED'
        ON CONFLICT (idempotency_key, operation_name, attempt) DO UPDATE
       SET outcome = 'UNKNOWN', ended_at = %(now)s, note = 'sealed: ' || %(reason)s
     WHERE last.outcome = 'RUNNING'
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
    RETURNING log.idempotency_key, log.operation_name, log.attempt, log.generation, log.worker
), ended AS ( -- not UPDATE, as in claim
    INSERT INTO idempotency_attempt AS last
           (idempotency_key, operation_name, attempt, generation, worker, outcome, started_at)
    SELECT idempotency_key, operation_name, attempt, generation, worker, 'UNKNOWN', %(now)s
      FROM ended_log
        ON CONFLICT (idempotency_key, operation_name, attempt) DO UPDATE
       SET outcome = 'UNKNOWN', ended_at = %(now)s, note = 'no sign of life until its lease ran out'
     WHERE last.outcome = 'RUNNING'
)
SELECT idempotency_key, operation_name FROM ended_log ORDER BY 1, 2;

-- name: end_worker
-- End the attempts of a worker that is known to be dead: they are fenced from now on. It is not
-- their operations' fault, so each gives its part of the budget back.
WITH ended_log AS (
    UPDATE idempotency_log AS log
       SET status = 'FAILED', in_doubt = true, spent = log.spent - 1, lease_until = NULL,
           retry_at = %(now)s, updated_at = %(now)s
      FROM (SELECT idempotency_key
              FROM idempotency_log
             WHERE operation_name = %(operation)s AND status = 'PROCESSING'
               AND worker = %(worker)s
             ORDER BY idempotency_key
               FOR UPDATE) AS dead
     WHERE log.idempotency_key = dead.idempotency_key AND log.operation_name = %(operation)s
    RETURNING log.idempotency_key, log.operation_name, log.attempt, log.generation, log.worker
), ended AS ( -- not UPDATE, as in claim
    INSERT INTO idempotency_attempt AS last
           (idempotency_key, operation_name, attempt, generation, worker, outcome, started_at)
    SELECT idempotency_key, operation_name, attempt, generation, worker, 'UNKNOWN', %(now)s
      FROM ended_log
        ON CONFLICT (idempotency_key, operation_name, attempt) DO UPDATE
       SET outcome = 'UNKNOWN', ended_at = %(now)s, note = 'its worker was found dead'
     WHERE last.outcome = 'RUNNING'
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
-- Attempts of operations, by the beginning of their keys, that came back late and were fenced, with
-- what stands committed of their generation.
SELECT own.idempotency_key, own.operation_name, own.attempt, own.worker, own.ended_at,
       own.result_digest, winner.attempt, winner.result_digest
  FROM idempotency_attempt AS own
  LEFT JOIN LATERAL (
       SELECT attempt, result_digest
         FROM idempotency_attempt AS other
        WHERE other.idempotency_key = own.idempotency_key
          AND other.operation_name = own.operation_name
          AND other.generation = own.generation AND other.outcome = 'SUCCEEDED'
        ORDER BY attempt DESC
        LIMIT 1) AS winner ON true
 WHERE own.outcome = 'FENCED' AND own.operation_name = ANY (%(operations)s)
   AND starts_with(own.idempotency_key, %(prefix)s)
 ORDER BY own.ended_at, own.idempotency_key, own.attempt;

-- name: prune
-- Forget operations that ended before an instant, with their attempts; sealed ones too: keep rows
-- longer than anything late can be. What may have happened, and waits for a person, is kept.
WITH forgotten AS (
    DELETE FROM idempotency_log
     WHERE updated_at < %(before)s AND status <> 'PROCESSING'
       AND NOT (in_doubt AND sealed_at IS NULL AND kind IN ('REMOTE', 'IRREVERSIBLE'))
    RETURNING idempotency_key, operation_name
), forgotten_attempts AS (
    DELETE FROM idempotency_attempt AS own
     USING forgotten
     WHERE own.idempotency_key = forgotten.idempotency_key
       AND own.operation_name = forgotten.operation_name
)
SELECT count(*) FROM forgotten;
