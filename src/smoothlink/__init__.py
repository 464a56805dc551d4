"""Classification with very many labels: a smooth, low-rank link function."""

import os

# NumPy and SciPy each bring a BLAS whose idle threads spin for a while before they sleep; taking turns, they starve
# each other (2.5 times slower on two cores). A shorter spin cures it where this import comes before NumPy's.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
