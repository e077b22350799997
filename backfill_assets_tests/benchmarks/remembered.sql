-- What Dagster would remember of partitions that were materialized, made from one event of its own:
-- writing a million through Dagster would take hours.

-- name: remember
-- Give an asset an event for each day and unit, like the one event that is there.
INSERT INTO event_logs
    (run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition)
SELECT run_id, event, dagster_event_type, timestamp, step_key, %(asset_key)s,
       day::date || '|' || unit
  FROM event_logs,
       generate_series(%(first)s::date, %(last)s::date, interval '1 day') AS day,
       unnest(%(units)s::text[]) AS unit
 WHERE id = (SELECT min(id) FROM event_logs WHERE dagster_event_type = 'ASSET_MATERIALIZATION');

-- name: analyze
-- Let the planner know of them, as autovacuum would after a while.
VACUUM ANALYZE event_logs;
