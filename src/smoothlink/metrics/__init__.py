"""Metrics of predictions, with intervals."""
