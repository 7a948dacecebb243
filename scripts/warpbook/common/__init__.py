"""What every package uses: errors, files, units, statistics, processes."""
