"""The real pages in a real browser."""
