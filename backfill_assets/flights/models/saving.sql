-- Scores as the pipeline saves them, beside the log, so that a row and the record of it commit
-- together.

-- name: lock
-- One process at a time makes the tables, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('backfill_assets.flights.models.saving', 0));

-- name: create
-- The scores of each day and airport, and of single flights that somebody asked for.
CREATE TABLE IF NOT EXISTS delay_scores (
    date      date NOT NULL,
    unit      text COLLATE "C" NOT NULL,
    model     text COLLATE "C" NOT NULL,
    flights   text[] NOT NULL,   -- sorted; the scores are in the same order
    risks     float8[] NOT NULL,
    anomalies float8[] NOT NULL,
    digest    text NOT NULL,     -- of flights and scores
    saved_by  text NOT NULL,     -- the attempt
    saved_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT delay_scores_once UNIQUE (date, unit, model)
);
CREATE TABLE IF NOT EXISTS requested_scores (
    request  text COLLATE "C" NOT NULL, -- the client's own name for it
    date     date NOT NULL,
    unit     text COLLATE "C" NOT NULL,
    flight   text COLLATE "C" NOT NULL,
    model    text COLLATE "C" NOT NULL,
    risk     float8 NOT NULL,
    anomaly  float8 NOT NULL,
    saved_by text NOT NULL,
    saved_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT requested_scores_once UNIQUE (request)
);
CREATE OR REPLACE VIEW delay_score AS
SELECT date, unit, flight, risk, anomaly, model, saved_at
  FROM delay_scores
 CROSS JOIN LATERAL unnest(flights, risks, anomalies) AS score (flight, risk, anomaly);

-- name: save
-- Keep the scores of a day and an airport. No row: some stand there already.
INSERT INTO delay_scores (date, unit, model, flights, risks, anomalies, digest, saved_by)
VALUES (%(date)s, %(unit)s, %(model)s, %(flights)s, %(risks)s, %(anomalies)s, %(digest)s,
        %(saved_by)s)
    ON CONFLICT DO NOTHING
RETURNING digest;

-- name: saved
-- What stands saved of a day and an airport. No row: nothing does.
SELECT digest, saved_by
  FROM delay_scores
 WHERE date = %(date)s AND unit = %(unit)s AND model = %(model)s;

-- name: save_requested
-- Keep the scores of one flight that somebody asked for.
INSERT INTO requested_scores (request, date, unit, flight, model, risk, anomaly, saved_by)
VALUES (%(request)s, %(date)s, %(unit)s, %(flight)s, %(model)s, %(risk)s, %(anomaly)s,
        %(saved_by)s);

-- name: saved_items
-- The days and airports of which scores of a model stand saved.
SELECT date, unit FROM delay_scores WHERE model = %(model)s ORDER BY date, unit;
