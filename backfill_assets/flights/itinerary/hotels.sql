-- A seller's books of hotel rooms. Ours stand in the database of the log; the partner keeps the same
-- kind of books in a database of its own, which only its server opens.

-- name: lock
-- One process at a time makes the tables, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('backfill_assets.flights.itinerary.hotels', 0));

-- name: create
-- Hotels, how many of their rooms are taken each night, stays that were sold, and the money for them.
CREATE SCHEMA IF NOT EXISTS hotels;
CREATE TABLE IF NOT EXISTS hotels.hotel (
    hotel       text COLLATE "C" PRIMARY KEY,
    city        text COLLATE "C" NOT NULL, -- by the code of its airport
    rooms       integer NOT NULL CHECK (rooms >= 0),
    price_cents integer NOT NULL CHECK (price_cents > 0) -- of a night
);
CREATE TABLE IF NOT EXISTS hotels.room_night (
    hotel text COLLATE "C" NOT NULL REFERENCES hotels.hotel,
    night date NOT NULL,
    rooms integer NOT NULL,
    taken integer NOT NULL,
    PRIMARY KEY (hotel, night),
    CONSTRAINT hotel_never_oversold CHECK (taken BETWEEN 0 AND rooms)
);
CREATE TABLE IF NOT EXISTS hotels.stay (
    booking      text COLLATE "C" PRIMARY KEY, -- the idempotency key under which it was booked
    hotel        text COLLATE "C" REFERENCES hotels.hotel,
    city         text COLLATE "C",
    first_night  date,
    nights       integer CHECK (nights > 0),
    traveller    text,
    price_cents  integer,
    booked_at    timestamptz,
    as_if        timestamptz,                  -- the traveller's own time at booked_at
    -- refused: cancelled before it came; a request that comes late finds this row, and is refused
    state        text NOT NULL CHECK (state IN ('booked', 'cancelled', 'refused')),
    cancelled_by text COLLATE "C",             -- the idempotency key of the cancellation
    fee_cents    integer CHECK (fee_cents >= 0),
    refund_cents integer CHECK (refund_cents >= 0),
    CHECK (state = 'refused' OR num_nulls(hotel, city, first_night, nights, traveller, price_cents,
                                          booked_at, as_if) = 0),
    CONSTRAINT stay_money_is_conserved CHECK (CASE state
        WHEN 'cancelled'
        THEN cancelled_by IS NOT NULL AND (fee_cents + refund_cents = price_cents) IS TRUE
        ELSE num_nulls(fee_cents, refund_cents) = 2 END)
);
CREATE TABLE IF NOT EXISTS hotels.payment (
    booking text COLLATE "C" NOT NULL REFERENCES hotels.stay,
    what    text NOT NULL CHECK (what IN ('charge', 'refund')),
    cents   integer NOT NULL CHECK (cents >= 0),
    PRIMARY KEY (booking, what)                -- nobody pays twice, or gets it back twice
);

-- name: open
-- Open a hotel. One that is open already stays as it is.
INSERT INTO hotels.hotel (hotel, city, rooms, price_cents)
VALUES (%(hotel)s, %(city)s, %(rooms)s, %(price_cents)s)
    ON CONFLICT DO NOTHING;

-- name: price
-- What a night costs. No row: there is no such hotel in that city.
SELECT price_cents FROM hotels.hotel WHERE hotel = %(hotel)s AND city = %(city)s;

-- name: write
-- Write down whose stay it is. No row: the booking is known already, or was cancelled before it came.
INSERT INTO hotels.stay (booking, hotel, city, first_night, nights, traveller, price_cents,
                         booked_at, as_if, state)
VALUES (%(booking)s, %(hotel)s, %(city)s, %(first_night)s, %(nights)s, %(traveller)s,
        %(price_cents)s, %(booked_at)s, %(as_if)s, 'booked')
    ON CONFLICT DO NOTHING
RETURNING hotel, city, first_night, nights, traveller, price_cents, booked_at, as_if;

-- name: take
-- Take a room for each night, in the order of the nights. Rows: the nights that had one left.
INSERT INTO hotels.room_night AS known (hotel, night, rooms, taken)
SELECT hotel, %(first_night)s::date + number, rooms, 1
  FROM hotels.hotel, generate_series(0, %(nights)s::integer - 1) AS number
 WHERE hotel = %(hotel)s AND rooms > 0
 ORDER BY number
    ON CONFLICT (hotel, night) DO UPDATE SET taken = known.taken + 1
 WHERE known.taken < known.rooms
RETURNING night;

-- name: charge
-- The traveller pays.
INSERT INTO hotels.payment (booking, what, cents) VALUES (%(booking)s, 'charge', %(cents)s);

-- name: free_rooms
-- The hotels of a city with a room free every night of a stay, the cheapest first.
SELECT hotel.hotel, hotel.price_cents,
       min(hotel.rooms - coalesce(room_night.taken, 0)) AS free
  FROM hotels.hotel
  LEFT JOIN hotels.room_night
    ON room_night.hotel = hotel.hotel
   AND night >= %(first_night)s
   AND night < %(first_night)s::date + %(nights)s::integer
 WHERE city = %(city)s
 GROUP BY hotel.hotel
HAVING min(hotel.rooms - coalesce(room_night.taken, 0)) > 0
 ORDER BY hotel.price_cents, hotel.hotel;

-- name: refuse
-- Keep out a booking that has not come. No row: it has.
INSERT INTO hotels.stay (booking, state, cancelled_by)
VALUES (%(booking)s, 'refused', %(cancelled_by)s)
    ON CONFLICT DO NOTHING
RETURNING booking;

-- name: booked
-- A stay, held until this transaction ends. No row: there is none.
SELECT hotel, city, first_night, nights, traveller, price_cents, booked_at, as_if, state,
       cancelled_by, fee_cents, refund_cents
  FROM hotels.stay
 WHERE booking = %(booking)s
   FOR UPDATE;

-- name: cancel
-- Cancel a stay that is held by `booked`; what was paid becomes fee and refund.
UPDATE hotels.stay
   SET state = 'cancelled', cancelled_by = %(cancelled_by)s, fee_cents = %(fee_cents)s,
       refund_cents = %(refund_cents)s
 WHERE booking = %(booking)s AND state = 'booked';

-- name: free
-- The room is free for somebody else.
UPDATE hotels.room_night SET taken = taken - 1
 WHERE hotel = %(hotel)s AND night >= %(first_night)s
   AND night < %(first_night)s::date + %(nights)s::integer;

-- name: refund
-- The traveller gets the rest back.
INSERT INTO hotels.payment (booking, what, cents) VALUES (%(booking)s, 'refund', %(cents)s);
