"""Readers: one module per source format, chosen by what a file holds."""
