"""Building, checking and timing variants, each in a separate process, and attacking the harness itself."""
