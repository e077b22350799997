-- One statement per category, each for any number of days and units, with every value type.
--
-- CSV, because Arrow reads it into typed columns without a Python object per value. PostgreSQL
-- writes null as nothing and empty text as "", so the two stay apart.
--
-- A mean is the exact sum of whole minutes, divided once: the same double on every server, for
-- every plan and every order of rows. The sum of no value is null, and so is its mean.

-- name: session
-- Write days, numbers and text in one way, whatever this server, database or role is set to; change
-- nothing; and give up some time.
SET client_encoding = 'UTF8';
SET datestyle = 'ISO, YMD';
SET extra_float_digits = 1; -- as many digits as a double needs to be read back exactly
SET default_transaction_read_only = on;
SET statement_timeout = '5min'; -- the whole year takes a second: what takes longer is stuck

-- name: carrier
-- One row per day, airport and carrier with a scheduled flight, sorted. No row: none was scheduled.
COPY (
    SELECT date, unit, carrier,
           count(dep_time) AS departures,
           count(*) - count(dep_time) AS cancellations,
           sum(dep_delay)::float8 / count(dep_delay) AS departure_delay,
           sum(arr_delay)::float8 / count(arr_delay) AS arrival_delay
      FROM flights.scheduled_flights
     WHERE date = ANY(%(days)s::date[]) AND unit = ANY(%(units)s::text[])
     GROUP BY date, unit, carrier
     ORDER BY date, unit, carrier
) TO STDOUT (FORMAT csv, HEADER);

-- name: destination
-- One row per day, airport and destination with a scheduled flight, sorted. No row: none was
-- scheduled.
COPY (
    SELECT date, unit, destination,
           count(dep_time) AS departures,
           count(*) - count(dep_time) AS cancellations,
           sum(dep_delay)::float8 / count(dep_delay) AS departure_delay,
           sum(arr_delay)::float8 / count(arr_delay) AS arrival_delay
      FROM flights.scheduled_flights
     WHERE date = ANY(%(days)s::date[]) AND unit = ANY(%(units)s::text[])
     GROUP BY date, unit, destination
     ORDER BY date, unit, destination
) TO STDOUT (FORMAT csv, HEADER);

-- name: hour
-- One row per day, airport and hour with a scheduled flight, sorted. No row: none was scheduled.
COPY (
    SELECT date, unit, hour,
           count(dep_time) AS departures,
           count(*) - count(dep_time) AS cancellations,
           sum(dep_delay)::float8 / count(dep_delay) AS departure_delay,
           sum(arr_delay)::float8 / count(arr_delay) AS arrival_delay
      FROM flights.scheduled_flights
     WHERE date = ANY(%(days)s::date[]) AND unit = ANY(%(units)s::text[])
     GROUP BY date, unit, hour
     ORDER BY date, unit, hour
) TO STDOUT (FORMAT csv, HEADER);

-- name: manufacturer
-- One row per day, airport and manufacturer with a scheduled flight, sorted. No row: none was
-- scheduled.
COPY (
    SELECT date, unit, manufacturer,
           count(dep_time) AS departures,
           count(*) - count(dep_time) AS cancellations,
           sum(dep_delay)::float8 / count(dep_delay) AS departure_delay,
           sum(arr_delay)::float8 / count(arr_delay) AS arrival_delay
      FROM flights.scheduled_flights
     WHERE date = ANY(%(days)s::date[]) AND unit = ANY(%(units)s::text[])
     GROUP BY date, unit, manufacturer
     ORDER BY date, unit, manufacturer
) TO STDOUT (FORMAT csv, HEADER);
