# Needs Python >= 3.11 (with venv and pip) and make; everything else is installed into .venv from
# requirements.lock.  PYTHON=python3.12 chooses an interpreter.
SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python)
PROBE := import ensurepip, ssl, sys, venv; sys.exit(sys.version_info < (3, 11))
ONCE ?=
# Tests that need a broker: processes that run them load no others.
WITH_BROKER := tests/broker tests/chaos tests/helm tests/integration

.PHONY: help setup run test quick check format generate bench chaos soak vectors lock clean

help: ## Show this help.
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | \
	  awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP) ## Build .venv from the lock file (does nothing when it is up to date).

$(STAMP): requirements.lock pyproject.toml
	@# A .venv that works is kept: its own interpreter must not change under its packages.
	@$(BIN)/python -c '$(PROBE)' >/dev/null 2>&1 || { \
	  found=; \
	  for candidate in $(PYTHONS); do \
	    if "$$candidate" -c '$(PROBE)' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "make setup: need Python >= 3.11 with ssl, venv and ensurepip; tried:" >&2; \
	    for candidate in $(PYTHONS); do \
	      echo "  $$candidate: $$("$$candidate" --version 2>&1 | head -n 1)" >&2; done; \
	    echo "Install one (on Debian also python3-venv), or: make setup PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	  fi; \
	  echo "make setup: $$("$$found" --version) -> $(VENV)"; \
	  "$$found" -m venv --clear $(VENV); \
	}
	@echo "make setup: installing the locked packages, a minute or two the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  --requirement requirements.lock
	@# The build backend came with the lock, so the project itself is installed without the network.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation --editable .
	@touch $(STAMP)

run: setup ## Show the whole thing at work on a Kafka of its own (ONCE=1: end after one round).
	@$(BIN)/harn demo $(if $(ONCE),--once) $(ARGS)

test: setup ## Run the checks and the whole suite, broker tests included (ARGS= goes to pytest).
ifdef ARGS
	@$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest -m "not soak" $(ARGS)
else
	@# Types are looked at by one process, and for as long as a third of these tests takes.
	@$(MAKE) --no-print-directory -j 2 check quick
	@# A Kafka each; they wait for most of their time.
	$(BIN)/python -m pytest -m "broker and not chaos and not soak" $(WITH_BROKER) \
	  -n 3 --dist worksteal --durations=10
	@# Tests that kill processes watch clocks: they have the machine for themselves.
	$(BIN)/python -m pytest -m "chaos and not soak" $(WITH_BROKER) --durations=10
endif

quick: setup ## Only the tests that need no broker, and kill nothing.
	$(BIN)/python -m pytest -m "not soak and not broker and not chaos" -n auto --dist worksteal

check: setup ## Format, lint, types and import directions.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: setup ## Rewrite the sources in the house format.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: setup ## Write what follows from the declarations: wire types, pages on records, topics, settings.
	$(BIN)/python -m schemas.generate
	$(BIN)/harn topology describe --format markdown > docs/topology.md
	$(BIN)/harn settings --markdown > docs/settings.md

bench: setup ## Measure, and write bench/results/latest.json.
	$(BIN)/python -m bench $(ARGS)

chaos: setup ## Only the tests that kill processes, the long ones included.
	$(BIN)/python -m pytest -m chaos $(ARGS)

soak: setup ## What is too long for every change: load, kills, schedules (ARGS= goes to pytest).
	$(BIN)/python -m pytest -m soak $(ARGS)

vectors: setup ## Write the golden logs' outputs anew: look at the difference, it is a change of behaviour.
	$(BIN)/python -m tests.vectors.regenerate

lock: setup ## Write the lock files anew: requirements.lock (needs uv), the broker's jars and classes.
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes \
	  --upgrade --group dev --extra postgres pyproject.toml --output-file requirements.lock
	$(BIN)/python tools/lock_kafka.py
	$(BIN)/python tools/list_kafka_classes.py

clean: ## Remove what was built (not .harn, which holds your data).
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
