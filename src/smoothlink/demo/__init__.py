"""The demo: a real many-label problem that needs no download."""
