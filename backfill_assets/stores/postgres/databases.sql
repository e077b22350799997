-- name: database_exists
-- Whether the database is there: one row, or none.
SELECT 1
  FROM pg_database
 WHERE datname = %(database)s;

-- name: create_database
-- Make an empty database. Fails where it exists, and sometimes where another is just making it.
CREATE DATABASE {database};

-- name: is_durable
-- Whether a commit survives a power cut: one row.
SELECT current_setting('fsync')::boolean;
