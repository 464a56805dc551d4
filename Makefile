# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run in as many processes as there are cores, at most four. Each has one thread of BLAS: more would wait for
# each other, and take a quarter more time. Bytecode is written even where the environment forbids it: without it every
# process that a test starts would compile the package, and pytest would rewrite every assertion, anew.
PYTEST := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

.PHONY: demo test test-torch test-all coverage fuzz torture torture-serve check docs bench clean

$(BIN)/smoothlink: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $(BIN)/smoothlink

$(VENV)/dev: $(BIN)/smoothlink
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(VENV)/dev

$(VENV)/docs: $(BIN)/smoothlink
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $(VENV)/docs

# PECOS wants an environment of its own: the table says how. SMOOTHLINK_PEERS may name a Python that has the others.
$(VENV)/bench: $(VENV)/dev
	test -n "$$SMOOTHLINK_PEERS" || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $(VENV)/bench

demo: $(BIN)/smoothlink
	$(BIN)/smoothlink demo

test: $(VENV)/dev
	$(PYTEST) -m 'not slow'

# Those that `make test` skips where torch is not installed: pip install 'smoothlink[gpu]' first.
test-torch: $(VENV)/dev
	$(PYTEST) -m 'torch and not slow'

test-all: $(VENV)/dev
	$(PYTEST)

# Every branch of what reads files of others, and of what writes. Compiled functions are run as Python first.
READS := tests/data tests/attacks tests/text tests/test_modelfile.py tests/test_safetensors_file.py tests/test_vocabulary.py \
	tests/test_cli_info.py tests/test_cli_predict.py tests/test_cli_train.py tests/cli/test_evaluate_command.py
PARSES := $(addprefix tests/data/test_,parse_rows.py svmlight.py decimal_floats.py malformed_files.py round_trips.py)
coverage: $(VENV)/dev
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest --cov --cov-report= -m 'not slow' $(PARSES)
	$(BIN)/python -m pytest --cov --cov-append --cov-fail-under=100 -m 'not slow' $(READS)

# Loads the server for an hour, fails and dies at every step under the writing of files, kills commands, lets memory run
# out at every large allocation, trains within budgets of memory, kills parts of a cluster, and forges models.
torture: torture-serve
	$(BIN)/python tests/torture/faults.py --kills 72
	$(BIN)/python tests/torture/allocations.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python tests/torture/cluster.py
	$(BIN)/python tests/torture/forged_models.py --files 100000

# Mutated inputs of every reader, of model files and of every route of the server, for an hour: `make fuzz MINUTES=5` for
# five minutes, `make fuzz INPUTS=1000000` for so many inputs.
MINUTES ?= 60
fuzz: $(VENV)/dev
	$(BIN)/python -W ignore tests/attacks/fuzz.py $(if $(INPUTS),--inputs $(INPUTS),--minutes $(MINUTES))

check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The server for an hour: 300 requests per second, new models, killed workers, hostile clients.
torture-serve: $(VENV)/dev
	$(BIN)/python benchmarks/serve_torture.py --seconds 3600

# Pages that come from the program are written anew; a link that leads nowhere fails the build.
docs: $(VENV)/docs
	$(BIN)/python docs/generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html."

# Hours on quiet cores; stopped and started again it goes on. Needs SMOOTHLINK_DATA, the folder of the data sets.
bench: $(VENV)/bench
	$(BIN)/python benchmarks/compare_peers.py
	$(BIN)/python benchmarks/sampled_negatives.py
	$(BIN)/python benchmarks/growth.py

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
