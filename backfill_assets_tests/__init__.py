"""Tests; the folders mirror the layers of the package."""
