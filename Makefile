# Needs make and Python 3.11 or later; everything else is installed into .venv. Try `make help`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHECKED := src tests $(wildcard examples) benchmarks docs/pictures

.DEFAULT_GOAL := help
.PHONY: help setup test lint format types pytest soak bench bench-quick demo demo-instances oracle fuzz-oracle constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Install everything into .venv (the other targets do this when it is needed)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Millstream needs Python 3.11 or later; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@if [ -x $(BIN)/pip ]; then echo "Updating $(VENV) ..."; \
		else echo "Setting up $(VENV) (first time takes a minute) ..."; $(PYTHON) -m venv $(VENV); fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test: lint types pytest ## Check style and types, then run all tests and the examples in docstrings

lint: $(STAMP) ## Check style and formatting
	@echo "Checking style (ruff) ..."
	@$(BIN)/ruff check --quiet $(CHECKED)
	@$(BIN)/ruff format --check --quiet $(CHECKED) || { echo "Not formatted; run: make format"; exit 1; }

types: $(STAMP) ## Check types
	@echo "Checking types (mypy) ..."
	@$(BIN)/mypy --no-error-summary $(CHECKED)

pytest: $(STAMP) ## Run the tests only; choose some with ARGS="-k serde"
	@echo "Running tests (pytest) ..."
	@$(BIN)/pytest --quiet -n 2 $(ARGS)

format: $(STAMP) ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix --quiet $(CHECKED) || true
	@$(BIN)/ruff format $(CHECKED)

soak: $(STAMP) ## Run the long fault tests: 20,000 scripts, 100 kills of a Spark run (takes hours)
	@MILLSTREAM_SOAK=1 $(BIN)/pytest --quiet -n 2 tests/commit tests/properties tests/spark/test_kills.py tests/spark/test_golden_cases_on_spark.py \
		tests/spark/test_cluster.py tests/spark/test_nine_stages.py tests/spark/test_takeover.py tests/spark/test_resident.py tests/engine \
		tests/spark/test_long_run.py tests/log/test_crashes.py $(ARGS)

bench: $(STAMP) ## Measure everything; write the results, tables and plots (takes half an hour)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(STAMP) ## Measure the most important things in a minute; write nothing
	@$(BIN)/python -m benchmarks --quick $(ARGS)

demo: $(STAMP) ## Run the word count: in this process, then on Spark, killed twice and checked
	@$(BIN)/python examples/wordcount.py
	@$(BIN)/python examples/shop_totals.py
	@$(BIN)/python examples/demo.py

demo-instances: $(STAMP) ## Instances come and go on a cluster of Spark on this machine, told by tables
	@$(BIN)/python -m examples.nine_stages

oracle: ## Make the golden files again with the real Kafka Streams (needs Java and Maven)
	@echo "Running Kafka Streams' own test driver ..."
	@mvn -q -f tests/oracle/pom.xml compile exec:java

fuzz-oracle: $(STAMP) ## Random topologies through Kafka Streams and ours: N=1000 SEED=0 MINUTES=10 (needs Java and Maven)
	@mvn -q -f tests/oracle/pom.xml compile dependency:build-classpath -Dmdep.outputFile=target/classpath
	@$(BIN)/python -m tests.oracle_fuzz --n $(or $(N),200) --seed $(or $(SEED),0) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

constraints: $(STAMP) ## Choose the newest versions that pyproject.toml allows and write constraints.txt
	@echo "Resolving versions (takes a few minutes) ..."
	@$(PYTHON) -m venv $(VENV)-pip-tools
	@$(VENV)-pip-tools/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	@$(VENV)-pip-tools/bin/pip-compile --quiet --upgrade --generate-hashes --all-build-deps --extra dev \
		--allow-unsafe --strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --output-file $(VENV)-pip-tools/constraints.txt pyproject.toml
	@{ head -n 1 constraints.txt; cat $(VENV)-pip-tools/constraints.txt; } > $(VENV)-pip-tools/new.txt
	@mv $(VENV)-pip-tools/new.txt constraints.txt
	@rm -rf $(VENV)-pip-tools

clean: ## Remove .venv, caches and whatever was built
	@rm -rf $(VENV) $(VENV)-pip-tools .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist tests/oracle/target
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
