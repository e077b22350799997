-- Flights and who sits in them, in the database of the log: a seat and the record of it commit
-- together.

-- name: lock
-- One process at a time makes the tables, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('backfill_assets.flights.itinerary.seats', 0));

-- name: create
-- Flights on offer, seats that were sold, and the money that moved for them.
CREATE SCHEMA IF NOT EXISTS itinerary;
CREATE TABLE IF NOT EXISTS itinerary.flight (
    flight      text COLLATE "C" NOT NULL, -- carrier and number; "made-up SFO-HNL" is no real one
    origin      text COLLATE "C" NOT NULL,
    day         date NOT NULL,             -- of scheduled departure, local
    destination text COLLATE "C" NOT NULL,
    departs_at  timestamptz NOT NULL,
    seats       integer NOT NULL CHECK (seats > 0),
    seats_from  text NOT NULL CHECK (seats_from IN ('aircraft register', 'assumed')),
    is_made_up  boolean NOT NULL,
    price_cents integer NOT NULL CHECK (price_cents > 0), -- made up, also of real flights
    taken       integer NOT NULL DEFAULT 0,
    PRIMARY KEY (flight, origin, day),
    CONSTRAINT flight_never_oversold CHECK (taken BETWEEN 0 AND seats)
);
CREATE TABLE IF NOT EXISTS itinerary.seat (
    booking      text COLLATE "C" PRIMARY KEY, -- the idempotency key under which it was booked
    flight       text COLLATE "C" NOT NULL,
    origin       text COLLATE "C" NOT NULL,
    day          date NOT NULL,
    traveller    text NOT NULL,
    cabin        text NOT NULL,
    price_cents  integer NOT NULL,
    booked_at    timestamptz NOT NULL,
    as_if        timestamptz NOT NULL,         -- the traveller's own time at booked_at
    state        text NOT NULL CHECK (state IN ('booked', 'cancelled')),
    cancelled_by text COLLATE "C",             -- the idempotency key of the cancellation
    fee_cents    integer CHECK (fee_cents >= 0),
    refund_cents integer CHECK (refund_cents >= 0),
    FOREIGN KEY (flight, origin, day) REFERENCES itinerary.flight,
    CONSTRAINT seat_money_is_conserved CHECK (CASE state
        WHEN 'booked' THEN num_nulls(cancelled_by, fee_cents, refund_cents) = 3
        ELSE cancelled_by IS NOT NULL AND (fee_cents + refund_cents = price_cents) IS TRUE END)
);
CREATE TABLE IF NOT EXISTS itinerary.payment (
    booking text COLLATE "C" NOT NULL REFERENCES itinerary.seat,
    what    text NOT NULL CHECK (what IN ('charge', 'refund')),
    cents   integer NOT NULL CHECK (cents >= 0),
    PRIMARY KEY (booking, what)                -- nobody pays twice, or gets it back twice
);

-- name: offer
-- Put a flight on offer. A flight that is on offer already stays as it is.
INSERT INTO itinerary.flight (flight, origin, day, destination, departs_at, seats, seats_from,
                              is_made_up, price_cents)
VALUES (%(flight)s, %(origin)s, %(day)s, %(destination)s, %(departs_at)s, %(seats)s,
        %(seats_from)s, %(is_made_up)s, %(price_cents)s)
    ON CONFLICT DO NOTHING;

-- name: take
-- Take a seat in a flight. No row: it is full, or is not on offer.
UPDATE itinerary.flight SET taken = taken + 1
 WHERE flight = %(flight)s AND origin = %(origin)s AND day = %(day)s AND taken < seats
RETURNING price_cents;

-- name: offered
-- Whether a flight is on offer. No row: it is not.
SELECT seats FROM itinerary.flight
 WHERE flight = %(flight)s AND origin = %(origin)s AND day = %(day)s;

-- name: write
-- Write down whose seat it is.
INSERT INTO itinerary.seat (booking, flight, origin, day, traveller, cabin, price_cents, booked_at,
                            as_if, state)
VALUES (%(booking)s, %(flight)s, %(origin)s, %(day)s, %(traveller)s, 'economy', %(price_cents)s,
        %(booked_at)s, %(as_if)s, 'booked')
RETURNING flight, origin, day, traveller, cabin, price_cents, booked_at, as_if;

-- name: charge
-- The traveller pays.
INSERT INTO itinerary.payment (booking, what, cents) VALUES (%(booking)s, 'charge', %(cents)s);

-- name: booked
-- A seat and when its flight departs, held until this transaction ends. No row: it is gone.
SELECT seat.flight, seat.origin, seat.day, traveller, cabin, seat.price_cents, booked_at, as_if,
       state, cancelled_by, departs_at
  FROM itinerary.seat JOIN itinerary.flight USING (flight, origin, day)
 WHERE booking = %(booking)s
   FOR UPDATE OF seat;

-- name: cancel
-- Cancel a seat that is held by `booked`; what was paid becomes fee and refund.
UPDATE itinerary.seat
   SET state = 'cancelled', cancelled_by = %(cancelled_by)s, fee_cents = %(fee_cents)s,
       refund_cents = %(refund_cents)s
 WHERE booking = %(booking)s AND state = 'booked';

-- name: free
-- The seat is free for somebody else.
UPDATE itinerary.flight SET taken = taken - 1
 WHERE flight = %(flight)s AND origin = %(origin)s AND day = %(day)s;

-- name: refund
-- The traveller gets the rest back.
INSERT INTO itinerary.payment (booking, what, cents) VALUES (%(booking)s, 'refund', %(cents)s);
