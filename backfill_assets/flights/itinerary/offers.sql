-- What the flights database says about a flight that somebody wants to book.

-- name: real_flight
-- A scheduled flight of 2013. No row: none of that name left that airport on that day.
SELECT dest AS destination,
       time_hour + make_interval(mins => flights.minute) AS departs_at,
       distance,
       planes.seats
  FROM flights.flights
  LEFT JOIN flights.planes USING (tailnum)
 WHERE scheduled_day = %(day)s AND origin = %(origin)s
   AND carrier || flight = %(flight)s;

-- name: departures
-- Flights of that day and airport, for somebody who named one that is not there.
SELECT carrier || flight || ' to ' || dest
  FROM flights.flights
 WHERE scheduled_day = %(day)s AND origin = %(origin)s
 ORDER BY hour, minute, carrier, flight
 LIMIT 5;
