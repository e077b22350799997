-- The rows of the idempotency log, written without its questions: what anybody would write who wants
-- one row for a key and one for each try, and trusts every writer.

-- name: make_bare_log
-- A table like the log's, with the same indexes.
CREATE TABLE bare_log (LIKE idempotency_log INCLUDING ALL);

-- name: make_bare_attempt
-- A table like that of the attempts, with the same indexes.
CREATE TABLE bare_attempt (LIKE idempotency_attempt INCLUDING ALL);

-- name: begin
-- Write that operations are at work.
WITH log AS (
    INSERT INTO bare_log AS known
           (idempotency_key, operation_name, kind, status, fingerprint, attempt, generation, spent,
            worker, claim_id, lease_until, created_at, updated_at)
    SELECT key, 'bench', 'ARTIFACT', 'PROCESSING', fingerprint, 1, 1, 1,
           'bench', %(claim)s, %(lease_until)s, %(now)s, %(now)s
      FROM unnest(%(keys)s::text[], %(fingerprints)s::text[]) AS asked (key, fingerprint)
        ON CONFLICT (idempotency_key, operation_name) DO UPDATE
       SET status = 'PROCESSING', worker = excluded.worker, claim_id = excluded.claim_id,
           lease_until = excluded.lease_until, updated_at = excluded.updated_at
)
INSERT INTO bare_attempt
       (idempotency_key, operation_name, attempt, generation, worker, claim_id, outcome, started_at)
SELECT key, 'bench', 1, 1, 'bench', %(claim)s, 'RUNNING', %(now)s
  FROM unnest(%(keys)s::text[]) AS asked (key)
    ON CONFLICT (idempotency_key, operation_name, attempt) DO UPDATE SET outcome = 'RUNNING';

-- name: end
-- Write that operations are done: the same rows again.
WITH log AS (
    INSERT INTO bare_log AS known
           (idempotency_key, operation_name, kind, status, fingerprint, attempt, generation, spent,
            worker, claim_id, result, created_at, updated_at)
    SELECT key, 'bench', 'ARTIFACT', 'COMPLETED', fingerprint, 1, 1, 1,
           'bench', %(claim)s, result::json, %(now)s, %(now)s
      FROM unnest(%(keys)s::text[], %(fingerprints)s::text[], %(results)s::text[])
        AS asked (key, fingerprint, result)
        ON CONFLICT (idempotency_key, operation_name) DO UPDATE
       SET status = 'COMPLETED', result = excluded.result, lease_until = NULL,
           updated_at = excluded.updated_at
)
INSERT INTO bare_attempt
       (idempotency_key, operation_name, attempt, generation, worker, claim_id, outcome, started_at,
        ended_at, result_digest)
SELECT key, 'bench', 1, 1, 'bench', %(claim)s, 'SUCCEEDED', %(now)s, %(now)s, digest
  FROM unnest(%(keys)s::text[], %(digests)s::text[]) AS asked (key, digest)
    ON CONFLICT (idempotency_key, operation_name, attempt) DO UPDATE
   SET outcome = 'SUCCEEDED', ended_at = excluded.ended_at, result_digest = excluded.result_digest;

-- name: try_again
-- Write operations that are there already, and learn which were not.
INSERT INTO bare_log
       (idempotency_key, operation_name, kind, status, fingerprint, attempt, generation, spent,
        worker, claim_id, lease_until, created_at, updated_at)
SELECT key, 'bench', 'ARTIFACT', 'PROCESSING', fingerprint, 1, 1, 1,
       'bench', %(claim)s, %(lease_until)s, %(now)s, %(now)s
  FROM unnest(%(keys)s::text[], %(fingerprints)s::text[]) AS asked (key, fingerprint)
    ON CONFLICT (idempotency_key, operation_name) DO NOTHING
RETURNING idempotency_key;
