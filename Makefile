# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all check bench clean

$(BIN)/smoothlink: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $(BIN)/smoothlink

$(VENV)/dev: $(BIN)/smoothlink
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(VENV)/dev

# PECOS wants an environment of its own: the table says how. SMOOTHLINK_PEERS may name a Python that has the others.
$(VENV)/bench: $(VENV)/dev
	test -n "$$SMOOTHLINK_PEERS" || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $(VENV)/bench

demo: $(BIN)/smoothlink
	$(BIN)/smoothlink demo

test: $(VENV)/dev
	$(BIN)/python -m pytest -m 'not slow'

test-all: $(VENV)/dev
	$(BIN)/python -m pytest

check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Hours on quiet cores; stopped and started again it goes on. Needs SMOOTHLINK_DATA, the folder of the data sets.
bench: $(VENV)/bench
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/drawn.py
	$(BIN)/python benchmarks/growth.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
