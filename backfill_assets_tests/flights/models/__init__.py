"""Tests of the models of delay: what they learn, the server, the pipeline, and its faults."""
