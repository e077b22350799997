-- name: loaded_version
-- The version that stands loaded. No row: some rows of it are gone, or a view.
SELECT version
  FROM flights.loaded
 WHERE rows = (SELECT count(*) FROM flights.airlines)
            + (SELECT count(*) FROM flights.airports)
            + (SELECT count(*) FROM flights.planes)
            + (SELECT count(*) FROM flights.weather)
            + (SELECT count(*) FROM flights.scheduled_flights)
   AND to_regclass('flights.weathered_flights') IS NOT NULL;

-- name: begin
-- One loader at a time, until its transaction ends, however it ends. A loader needs a second: one
-- that took a minute is stuck, and an error is better than waiting with it.
SET LOCAL lock_timeout = '60s';
SET LOCAL synchronous_commit = on; -- what was reported as loaded is there after a crash
SELECT pg_advisory_xact_lock(hashtextextended('backfill_assets.flights.load', 0));

-- name: is_ours
-- Whether an earlier load made the tables, so that they may be replaced.
SELECT to_regclass('flights.loaded') IS NOT NULL;

-- name: drop
-- Take an earlier version away; what others built upon it stops this, and nothing is lost.
DROP VIEW IF EXISTS flights.weathered_flights, flights.scheduled_flights;
DROP TABLE IF EXISTS flights.airlines, flights.airports, flights.planes, flights.weather,
                     flights.flights, flights.loaded;

-- In all files NA is a missing value, and no code or name in them reads NA. HEADER MATCH refuses a
-- file whose columns are not the table's, and needs PostgreSQL 15. FREEZE: no vacuum has to write
-- the table once more.

-- name: copy_airlines
-- Fill the table.
COPY flights.airlines FROM STDIN (FORMAT csv, HEADER MATCH, NULL 'NA', ENCODING 'UTF8', FREEZE);

-- name: copy_airports
-- Fill the table.
COPY flights.airports FROM STDIN (FORMAT csv, HEADER MATCH, NULL 'NA', ENCODING 'UTF8', FREEZE);

-- name: copy_planes
-- Fill the table.
COPY flights.planes FROM STDIN (FORMAT csv, HEADER MATCH, NULL 'NA', ENCODING 'UTF8', FREEZE);

-- name: copy_weather
-- Fill the table.
COPY flights.weather FROM STDIN (FORMAT csv, HEADER MATCH, NULL 'NA', ENCODING 'UTF8', FREEZE);

-- name: copy_flights
-- Fill the table; its generated column is left out.
COPY flights.flights FROM STDIN (FORMAT csv, HEADER MATCH, NULL 'NA', ENCODING 'UTF8', FREEZE);

-- name: finish
-- Index the flights by day, which is faster after they stand, and tell the planner about all.
ALTER TABLE flights.flights ADD PRIMARY KEY (scheduled_day, origin, carrier, flight);
ANALYZE flights.airlines, flights.airports, flights.planes, flights.weather, flights.flights;

-- name: record
-- Say that everything stands.
INSERT INTO flights.loaded (version, rows) VALUES (%(version)s, %(rows)s);
