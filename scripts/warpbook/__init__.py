"""What Warpbook's scripts share: the subject here, and a room each for the harness, profiling and the report."""
