"""Where it runs: arrays, kernels, and the rows that the algorithms sum over."""

import os

# Threads that wait sleep. Left to spin, as is the default, they hold the core that the last thread needs wherever
# other processes share the machine: 16 iterations of small products took 1.3 s there, against 2 ms.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
