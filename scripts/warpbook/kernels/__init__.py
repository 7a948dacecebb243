"""The variants in kernels/: their headers, sources, launches and claims, read and never run here."""
