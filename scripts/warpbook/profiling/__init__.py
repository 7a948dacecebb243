"""Profiles of programs: captured, imported, and read into rows of one schema."""
