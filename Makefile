# make up [ARGS="--port 3001"]   everything, from an empty folder to a complete history
# make test                      all tests, with a real PostgreSQL
# make browser                  the pages, in a real Chromium (installed where there is none)
# make check                     format, lint, types, import contracts, workspace
# make bench [ONLY=scan]         the benchmark suite

PYTHON ?= python3
VENV := .venv
UV := 0.13.9
BIN := $(VENV)/bin

.PHONY: up test browser check bench lock clean

up: $(VENV)/ready
	@$(BIN)/backfill-assets up $(ARGS)

test: $(VENV)/ready
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ARGS)

browser: $(VENV)/ready
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }
	$(BIN)/python -m pytest -m browser $(ARGS)

check: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/dagster definitions validate --workspace workspace.yaml

# The environment is made anew when the lock changes; uv installs it in seconds.
$(VENV)/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --compile-bytecode --require-hashes requirements.lock
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

bench: $(VENV)/ready
	$(BIN)/python -m backfill_assets_tests.benchmarks $(ONLY)

lock:
	uv pip compile --quiet --universal --generate-hashes --no-strip-extras --python-version 3.11 \
		--group dev --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .backfill
