"""Booking an itinerary: flights out and back and two hotels, all of it or none, or a question."""
