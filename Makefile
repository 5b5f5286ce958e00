.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_WORKERS ?= 4

.PHONY: help run demo test check bench soak clean lock format

help:
	@echo "make run    install what is missing, start the embedded stack, print its address and token"
	@echo "make demo   the guided tour; ends by itself"
	@echo "make test   everything CI runs, from nothing: lint, types, contracts, tests"
	@echo "make check  lint, types and import contracts only"
	@echo "make bench  the performance table"
	@echo "make soak   long-running load"
	@echo "make clean  remove the environment and caches"

$(STAMP): pyproject.toml requirements.lock requirements-dev.lock scripts/bootstrap.sh
	@sh scripts/bootstrap.sh $(VENV)
	@touch $@

run: $(STAMP)
	@$(BIN)/palyra up --workers 1

demo: $(STAMP)
	@$(BIN)/palyra tour

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: check
	@$(BIN)/python -m compileall -q src tests
	@$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup -m "not soak" || \
	  { echo "Once more, alone: what failed beside the others. It must pass, and its race is worth mending."; \
	    $(BIN)/pytest --last-failed --last-failed-no-failures none -m "not soak"; }

bench: $(STAMP)
	@PYTHONPATH=tests $(BIN)/python -m perf

soak: $(STAMP)
	@$(BIN)/pytest -m soak --timeout 3600 tests/soak
	@PALYRA_RANDOM_EXAMPLES=1 $(BIN)/pytest -n $(PYTEST_WORKERS) --timeout 3600 tests/unit

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Pinned with hashes, and without the address of any package index.
lock: $(STAMP)
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -p 3.11 pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -p 3.11 --extra dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist bench-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
