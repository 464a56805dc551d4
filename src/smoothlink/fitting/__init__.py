"""Fits: a request becomes settings (choose), settings and rows a model (link), held-out rows calibrate it."""
