"""Runs: their tables, where they lie, and what is summarised of them."""
