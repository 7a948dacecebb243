"""The report's charts: evidence in, one SVG out; a module for each kind of chart. A variant keeps its colour and marker."""
