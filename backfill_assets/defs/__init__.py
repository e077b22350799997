"""Definitions only: partitions, assets, checks, sensors, jobs, and which data sets there are."""
