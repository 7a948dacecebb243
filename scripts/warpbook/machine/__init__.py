"""This machine: its GPUs, who may use one when, and the profilers that it has."""
