-- What is known about scheduled flights, as CSV with a header, sorted so that the same question gives
-- the same bytes. Missing weather is null, and no flight is left out for it.

-- name: session
-- Write days, numbers and text in one way, whatever this server, database or role is set to; change
-- nothing; and give up some time.
SET client_encoding = 'UTF8';
SET datestyle = 'ISO, YMD';
SET extra_float_digits = 1; -- as many digits as a double needs to be read back exactly
SET default_transaction_read_only = on;
SET statement_timeout = '5min'; -- half a year takes two seconds: what takes longer is stuck

-- name: known
-- Each scheduled flight of the days and airports, and nothing of what became of it. No row: none was
-- scheduled.
COPY (
    SELECT date, unit, flight, carrier, destination, departure_minute, arrival_minute, distance,
           weekday, departures_in_hour, temperature, dew_point, humidity, wind_direction,
           wind_speed, wind_gust, precipitation, pressure, visibility
      FROM flights.weathered_flights
     WHERE date = ANY(%(days)s::date[]) AND unit = ANY(%(units)s::text[])
     ORDER BY date, unit, flight COLLATE "C"
) TO STDOUT (FORMAT csv, HEADER);

-- name: known_and_delay
-- Each scheduled flight between two days, both inclusive, and its delay at arrival in minutes. No row:
-- none was scheduled. A null delay: it never arrived at its destination.
COPY (
    SELECT date, unit, flight, carrier, destination, departure_minute, arrival_minute, distance,
           weekday, departures_in_hour, temperature, dew_point, humidity, wind_direction,
           wind_speed, wind_gust, precipitation, pressure, visibility, arrival_delay
      FROM flights.weathered_flights
     WHERE date BETWEEN %(first_day)s AND %(last_day)s
     ORDER BY date, unit, flight COLLATE "C"
) TO STDOUT (FORMAT csv, HEADER);
