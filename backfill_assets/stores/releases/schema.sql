-- name: lock
-- One process at a time makes the tables, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('backfill_assets.releases.schema', 0));

-- name: published_day
-- A released day: whose rows stand. Taken back, the row goes, and all of the day with it.
CREATE TABLE IF NOT EXISTS published_day (
    catalogue   text COLLATE "C" NOT NULL,
    day         date NOT NULL,
    saga        text NOT NULL,          -- that loaded the rows; it alone may take them back
    round       integer NOT NULL,
    loaded_at   timestamptz NOT NULL,
    PRIMARY KEY (catalogue, day)
);

-- name: published_partition
-- What was loaded of each partition: as its file said when it was read.
CREATE TABLE IF NOT EXISTS published_partition (
    catalogue     text COLLATE "C" NOT NULL,
    day           date NOT NULL,
    category      text COLLATE "C" NOT NULL,
    value_type    text COLLATE "C" NOT NULL,
    unit          text COLLATE "C" NOT NULL,
    version       integer NOT NULL,
    rows          integer NOT NULL,
    digest        text NOT NULL,
    category_type text NOT NULL,        -- as the catalogue declared it: how to read group_value
    column_type   text NOT NULL,        -- the same of value
    PRIMARY KEY (catalogue, day, category, value_type, unit),
    FOREIGN KEY (catalogue, day) REFERENCES published_day ON DELETE CASCADE
);

-- name: published_values
-- The rows of released days, for everyone to read.
CREATE TABLE IF NOT EXISTS published_values (
    catalogue   text COLLATE "C" NOT NULL,
    day         date NOT NULL,
    category    text COLLATE "C" NOT NULL,
    value_type  text COLLATE "C" NOT NULL,
    unit        text COLLATE "C" NOT NULL,
    position    integer NOT NULL,       -- in the file, from 0
    group_value text,                   -- of the category
    value       double precision,
    exact       text,                   -- the value where a double cannot hold it: a text, or a
                                        -- whole number beyond 2^53
    PRIMARY KEY (catalogue, day, category, value_type, unit, position),
    FOREIGN KEY (catalogue, day, category, value_type, unit)
        REFERENCES published_partition ON DELETE CASCADE
);
