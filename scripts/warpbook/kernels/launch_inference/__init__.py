"""How a kernel is called, read from the host code of its own source."""
