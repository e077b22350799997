"""Tests of the rules: examples with literal values, and properties against independent models."""
