"""Fits and predictions on a Dask cluster."""
