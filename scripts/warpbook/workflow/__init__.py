"""What the Snakefile asks: which files are made, from what, and what the console says."""
