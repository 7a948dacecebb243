"""Where the parts of a run are made, and how whole networks are named among variants."""

WHOLE = "network/"
"""What stands before the name of an implementation of whole networks where variants are named, too."""

PARTS = "results/parts"  # where the parts of a run are made, in a folder (or a file) called like their table
