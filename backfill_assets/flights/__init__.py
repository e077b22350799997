"""The example business: flights from New York in 2013. Nothing here knows Dagster.

To put a data set of your own in its place, write a catalogue and a source like the ones here.
"""
