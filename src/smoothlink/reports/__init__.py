"""Self-contained HTML pages: a report on one model, and a comparison of two."""
