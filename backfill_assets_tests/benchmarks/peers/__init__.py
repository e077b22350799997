"""What people would use instead, and the environment in which it is installed.

The peers share the product's source (`FlightsSource`) and nothing else of it: the question that
they ask PostgreSQL is the same, byte by byte.
"""
