"""Kernels and launchers that cheat, which the harness must catch."""
