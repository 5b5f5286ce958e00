.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-for-tests
PYTEST_WORKERS ?= 4
CHECKS := $(VENV)/checks.txt
SECOND_TRIES := $(VENV)/second-tries.txt
MINUTES ?= 30

.PHONY: help run demo test check words bench soak soak-tests clean lock format

help:
	@echo "make run    WORKSPACE=FOLDER: install what is missing, start everything for FOLDER, print the address and token"
	@echo "make demo   the guided tour; ends by itself"
	@echo "make test   everything CI runs, from nothing: lint, types, contracts, tests"
	@echo "make check  lint, types, import contracts and plain English only"
	@echo "make words  phrases and names that are not plain English"
	@echo "make bench  fetch what is measured against, then the whole performance table"
	@echo "make soak   MINUTES=30 of mixed load on a whole stack while everything around it fails, then a verdict"
	@echo "make soak-tests  the long tests of single parts, and random examples"
	@echo "make clean  remove the environment and caches"

# A Python that was taken from under the environment, as by an upgrade of the distribution: it has to be made anew.
GONE := $(shell [ ! -e $(STAMP) ] || [ -x $(BIN)/python ] || echo python-is-gone)
.PHONY: python-is-gone

$(STAMP): pyproject.toml requirements.lock scripts/bootstrap.sh scripts/environment.sh scripts/system_packages.sh $(GONE)
	@sh scripts/bootstrap.sh $(VENV)
	@touch $@

$(TEST_STAMP): $(STAMP) requirements-dev.lock scripts/bootstrap_tests.sh tests/npm/package-lock.json
	@sh scripts/bootstrap_tests.sh $(VENV)
	@touch $@

run: $(STAMP)
	@$(BIN)/palyra up --workers 1 $(if $(WORKSPACE),--workspace $(WORKSPACE))

demo: $(STAMP)
	@$(BIN)/palyra tour

check: $(TEST_STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/check_phrases.py
	@$(BIN)/python scripts/check_words.py

words: $(TEST_STAMP)
	@$(BIN)/python scripts/check_phrases.py
	@$(BIN)/python scripts/check_words.py

# The checks use one processor and tests wait for half of their time, so they run beside each other. The checks print
# after the tests, and the tests that needed a second try come last. The tests are collected once, with bytecode written,
# so that not each worker has to take every file's assertions apart again.
test: $(TEST_STAMP)
	@$(BIN)/python -m compileall -q src tests/fakes
	@$(MAKE) --no-print-directory check >$(CHECKS) 2>&1 & checks=$$!; \
	  PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --collect-only -q -m "not soak" >/dev/null 2>&1; \
	  $(BIN)/python scripts/run_tests.py --workers $(PYTEST_WORKERS) --report $(SECOND_TRIES); tested=$$?; \
	  wait $$checks && echo "Lint, types and import contracts are as they must be." || { cat $(CHECKS); tested=1; }; \
	  cat $(SECOND_TRIES); exit $$tested

bench: $(TEST_STAMP)
	@sh scripts/bench_peers.sh $(BIN)/python
	@$(BIN)/palyra bench $(BENCH)

# As root: it makes networks, mounts and control groups of its own. SEED=N makes the choices of a run that failed.
soak: $(TEST_STAMP)
	@PYTHONPATH=tests $(BIN)/python -m soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

soak-tests: $(TEST_STAMP)
	@$(BIN)/pytest -m soak --timeout 3600 tests/soak
	@PALYRA_RANDOM_EXAMPLES=1 $(BIN)/pytest -n $(PYTEST_WORKERS) --timeout 3600 tests/unit

format: $(TEST_STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Pinned with hashes, and without the address of any package index.
lock: $(TEST_STAMP)
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -p 3.11 pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -p 3.11 --extra dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist bench-results soak-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
