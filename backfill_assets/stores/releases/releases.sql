-- name: take_day
-- Become the release whose rows stand for a day. No row: a later round's do already.
INSERT INTO published_day AS known (catalogue, day, saga, round, loaded_at)
VALUES (%(catalogue)s, %(day)s, %(saga)s, %(round)s, %(now)s)
    ON CONFLICT (catalogue, day) DO UPDATE
   SET saga = excluded.saga, round = excluded.round, loaded_at = excluded.loaded_at
 WHERE known.round <= excluded.round
RETURNING saga;

-- name: hold_day_row
-- Whose rows stand for a day; nobody changes that before this transaction ends. No row: nobody's.
SELECT saga FROM published_day
 WHERE catalogue = %(catalogue)s AND day = %(day)s
   FOR UPDATE;

-- name: keep_completed
-- Let nobody take a release back before this transaction ends. No row: it does not stand.
SELECT saga_id FROM saga WHERE saga_id = %(saga)s AND status = 'COMPLETED' FOR SHARE;

-- name: take_back
-- Remove all rows of a day that a release loaded. No row: they are another's, or gone already.
DELETE FROM published_day
 WHERE catalogue = %(catalogue)s AND day = %(day)s AND saga = %(saga)s
RETURNING saga;

-- name: clear_day
-- Remove what an earlier round loaded of a day.
DELETE FROM published_partition WHERE catalogue = %(catalogue)s AND day = %(day)s;

-- name: clear_partition
-- Remove one partition with its rows.
DELETE FROM published_partition
 WHERE catalogue = %(catalogue)s AND day = %(day)s
   AND category = %(category)s AND value_type = %(value_type)s AND unit = %(unit)s;

-- name: copy_partitions
-- Load partitions, before their rows.
COPY published_partition (catalogue, day, category, value_type, unit, version, rows, digest,
                          category_type, column_type) FROM STDIN;

-- name: copy_values
-- Load rows of partitions.
COPY published_values (catalogue, day, category, value_type, unit, position, group_value, value,
                       exact) FROM STDIN;

-- name: days
-- The days of a catalogue that have rows, and whose.
SELECT day, saga, round FROM published_day WHERE catalogue = %(catalogue)s ORDER BY day DESC;

-- name: partitions
-- What was loaded of the partitions of one day, or of all days.
SELECT day, category, value_type, unit, version, rows, digest, category_type, column_type
  FROM published_partition
 WHERE catalogue = %(catalogue)s AND (%(day)s::date IS NULL OR day = %(day)s)
 ORDER BY day DESC, category, value_type, unit;

-- name: values
-- The rows of a day as they stand, in the order of their files.
SELECT category, value_type, unit, group_value, value, exact
  FROM published_values
 WHERE catalogue = %(catalogue)s AND day = %(day)s
 ORDER BY category, value_type, unit, position;

-- name: rounds
-- All rounds of releasing days of a catalogue; of those that were undone also by whom, whether the
-- day was held for it, and why.
SELECT saga.key, saga.status, saga.updated_at,
       turned.event = 'cancelled' OR coalesce(turned.detail ->> 'choice' = 'compensate', false),
       EXISTS (SELECT FROM idempotency_log AS held
                WHERE held.idempotency_key = saga.saga_id AND held.status = 'COMPLETED'
                  AND held.operation_name IN ('hold_day', 'write_manifest.undo')),
       turned.why
  FROM saga
  LEFT JOIN LATERAL (
        SELECT event, detail, why FROM saga_journal AS journal
         WHERE saga.is_turned_back AND journal.saga_id = saga.saga_id
           AND (event IN ('cancelled', 'turned back')
                OR event = 'decided' AND detail ->> 'choice' = 'compensate')
         ORDER BY version LIMIT 1) AS turned ON true
 WHERE saga.name = 'release_day' AND starts_with(saga.key, %(catalogue)s || '/')
   AND (%(day)s::text IS NULL OR split_part(saga.key, '/', 2) = %(day)s);
