"""What a study may claim, and the pages that say so."""
