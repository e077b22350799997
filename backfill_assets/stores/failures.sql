-- name: create
-- The memory of failed partitions. Losing it costs a retry, never a result.
CREATE TABLE IF NOT EXISTS partition_failure (
    partition  text PRIMARY KEY,      -- catalogue/category/value_type/day/unit
    version    integer NOT NULL,      -- of the query
    attempts   integer NOT NULL CHECK (attempts >= 0),  -- 0: the source was not ready
    error      text NOT NULL,
    failed_at  timestamptz NOT NULL,
    retry_at   timestamptz NOT NULL
);

-- name: note
-- Count one more attempt of each partition, and put its next one off: twice as long each time.
INSERT INTO partition_failure AS known (partition, version, attempts, error, failed_at, retry_at)
SELECT name, version, %(spent)s, %(error)s, %(now)s, %(now)s + %(first_wait)s
  FROM unnest(%(partitions)s::text[], %(versions)s::integer[]) AS failed (name, version)
    ON CONFLICT (partition) DO UPDATE
   SET version = excluded.version,
       attempts = known.attempts + %(spent)s,
       error = excluded.error,
       failed_at = excluded.failed_at,
       retry_at = excluded.failed_at + LEAST(
           %(longest_wait)s, %(first_wait)s * power(2, LEAST(known.attempts, 30))
       );

-- name: forget
-- Drop what is known of partitions that are committed by now.
DELETE FROM partition_failure WHERE partition = ANY (%(partitions)s);

-- name: read
-- All that is known about one catalogue.
SELECT partition, attempts, error, failed_at, retry_at
  FROM partition_failure
 WHERE starts_with(partition, %(prefix)s)
 ORDER BY partition;
