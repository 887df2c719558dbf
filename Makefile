# flameslice: `make help` lists every task. Nothing here writes outside the checkout, except pip into its own cache.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
PYTEST_ARGS ?=
BROKERS ?= 1

MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := $(VENV)/bin
# the stamp carries the interpreter's version, so that another PYTHON makes the environment anew
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
COMMA := ,
python_says = $(shell $(PYTHON) -c 'import sys; $(1) and print("yes")' 2>/dev/null)
READY := $(VENV)/.ready-$(PYTHON_VERSION)
KAFKA_READY := .cache/kafka/.ready

# what tests and demo use of the system: perf, a browser, a Kafka broker, and what builds the Python side
SYSTEM_PACKAGES := git make python3-venv linux-perf chromium default-jre-headless maven strace

##@ Start here
.PHONY: demo
demo: venv ## flame graph, chart and slices of the capture that ships with the project, into demo/out
	@$(BIN)/python demo/run.py

.PHONY: test
test: venv kafka-jars ## set up what is missing and run all tests; skipped ones are listed with the reason
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -q $(PYTEST_ARGS)

##@ While developing
.PHONY: venv
venv: $(READY) ## the virtual environment in .venv, with the versions of constraints.txt

.PHONY: check
check: venv ## ruff, mypy, import-linter, and docs that are made from the code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/pages.py --check

.PHONY: docs
docs: venv ## make what the docs take from the code anew (tables, list of modules)
	@$(BIN)/python tools/pages.py

.PHONY: format
format: venv ## let ruff format and repair what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: bench
bench: venv ## measure against the peers, as ratios of one run
	@$(BIN)/python -m benchmarks

.PHONY: soak
soak: soak-kills soak-laws ## soak-kills, then soak-laws

.PHONY: soak-kills
soak-kills: venv kafka-jars ## workers and producers killed at random, 50 times and more on each log (15 minutes)
	@FLAMESLICE_SOAK_KILLS=50 $(BIN)/python -m pytest -q -k killed_at_random tests/pipeline/worker $(PYTEST_ARGS)

.PHONY: soak-laws
soak-laws: venv ## the tests of laws with a hundred times the random examples (hours may pass)
	@$(BIN)/python -m pytest -n $(WORKERS) -q -m hypothesis --hypothesis-profile soak $(PYTEST_ARGS)

.PHONY: kafka-jars
kafka-jars: ## Kafka's jars into .cache/kafka for the broker tests, where Java and Maven are there
	@if [ -e $(KAFKA_READY) ] && [ ! tools/kafka/pom.xml -nt $(KAFKA_READY) ]; then exit 0; fi; \
	if ! command -v java >/dev/null; then echo "kafka-jars: no Java here, so tests that need a broker are skipped (apt-get install default-jre-headless)"; exit 0; fi; \
	if ! command -v mvn >/dev/null; then echo "kafka-jars: no Maven here, so tests that need a broker are skipped (apt-get install maven)"; exit 0; fi; \
	rm -rf .cache/kafka; mkdir -p .cache/kafka; \
	if timeout 600 mvn -q -B -f tools/kafka/pom.xml -Dmaven.repo.local="$(CURDIR)/.cache/m2" dependency:copy-dependencies \
	  -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/.cache/kafka/libs" </dev/null >.cache/kafka/fetch.log 2>&1; \
	then touch $(KAFKA_READY); \
	else echo "kafka-jars: Maven could not fetch Kafka (see .cache/kafka/fetch.log), so tests that need a broker are skipped"; fi

.PHONY: kafka
kafka: kafka-jars ## run a real Kafka broker on loopback until Ctrl-C, prints its address; three with BROKERS=3
	@exec $(PYTHON) tools/kafka/broker.py --brokers $(BROKERS)

.PHONY: clean
clean: ## remove what the tasks above made: .venv, .cache, demo/out and tool caches
	rm -rf $(VENV) .cache build dist demo/out benchmarks/out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ The system
.PHONY: system-deps
system-deps: ## install the Debian packages that the tests can use (as root); the only task that touches the system
	@missing=(); for name in $(SYSTEM_PACKAGES); do \
	  [ "$$(dpkg-query -W -f '$${db:Status-Status}' $$name 2>/dev/null)" = installed ] || missing+=($$name); done; \
	if [ $${#missing[@]} -eq 0 ]; then echo "system-deps: all installed ($(SYSTEM_PACKAGES))"; exit 0; fi; \
	if [ "$$(id -u)" -ne 0 ]; then echo "system-deps: run as root: apt-get install $${missing[*]}" >&2; exit 1; fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends "$${missing[@]}" </dev/null

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z][a-z-]*:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nVariables: PYTHON=%s (3.11 or newer), VENV=%s, WORKERS=%s, PYTEST_ARGS\n' '$(PYTHON)' '$(VENV)' '$(WORKERS)'

$(READY): pyproject.toml constraints.txt
	$(if $(shell command -v git),,$(error git is missing: apt-get install git))
	$(if $(PYTHON_VERSION),,$(error $(PYTHON) is missing or does not run: apt-get install python3-venv))
	$(if $(call python_says,sys.version_info >= (3$(COMMA) 11)),,$(error $(PYTHON) is Python $(PYTHON_VERSION), and flameslice needs 3.11 or newer: make PYTHON=python3.12))
	$(if $(call python_says,__import__("ensurepip")),,$(error $(PYTHON) cannot make virtual environments: apt-get install python3-venv))
	@echo "setting up $(VENV) with Python $(PYTHON_VERSION) ..."
	@rm -f $(VENV)/.ready-*
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables </dev/null
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]' </dev/null
	@touch $@
