"""The configuration model: config.yaml, checked."""
