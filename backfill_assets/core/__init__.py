"""Rules as pure values: no I/O, no clock, no logging, no Dagster, no data frames."""
