# People and CI use the same words. A bare Debian 12 needs make, python3 and a network; uv, the
# environment, a Java if there is none, and the database servers bring themselves.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# A uv that does not answer (a version manager's stub) counts as none.
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo .tools/uv/bin/uv)
# A machine's own authorities count, where it has any.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS ?= 1
endif
# Tests start hundreds of Pythons: without its caches each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
SYNCED := .venv/.synced
ARGS ?=

# Started servers, if any, are used; each test run starts its own otherwise.
WITH_SERVERS := set -a; [ ! -f build/servers.env ] || . build/servers.env; set +a;

.PHONY: help setup format lint types arch test demo bench debezium lake-readers servers-up servers-down \
	test-servers test-spark test-airflow end-to-end soak sweep wheel clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(SYNCED) ## bring uv and make the locked environment in .venv

$(SYNCED): pyproject.toml uv.lock | $(filter .tools/%,$(UV))
	$(UV) sync --frozen --quiet
	@touch $@

# Debian's python3 can make no environments before python3-venv is installed.
.tools/uv/bin/uv:
	@python3 -c 'import ensurepip' 2>/dev/null || { [ "$$(id -u)" = 0 ] && \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv; } || { \
		echo 'python3 cannot make environments; install uv or python3-venv, then try again' >&2; exit 1; }
	python3 -m venv .tools/uv
	.tools/uv/bin/python -m pip install --quiet uv

format: $(SYNCED) ## rewrite the code in the one style
	$(BIN)/ruff check --fix --quiet || true
	$(BIN)/ruff format

lint: $(SYNCED) ## check style, spelling, the project file and dependencies
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/deptry airflow_cdc_provider

types: $(SYNCED) ## check types, strictly
	$(BIN)/mypy

arch: $(SYNCED) ## check that rooms know only the rooms below them
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest tests/arch $(ARGS)

# Two processes share the tests where the machine has room for both; ARGS=-n0 runs them in one.
# Of cases that are alike, such as those of both families, it takes some, by a seed that it prints.
test: $(SYNCED) ## run the tests, with real servers; FAMILIES=all takes all cases, =7 those of seed 7
	$(WITH_SERVERS) CDC_FAMILIES=$(or $(FAMILIES),one) $(BIN)/pytest -n auto --dist worksteal $(ARGS)

demo: $(SYNCED) ## copy a live database before your eyes; SINK=iceberg to a lake, KEEP=1 leaves it up
	$(BIN)/python -m tests.end_to_end.demo

bench: $(SYNCED) ## measure against the peers; ONLY=decode runs a part
	$(UV) sync --frozen --quiet --group bench
	$(BIN)/python -m tests.benchmarks $(ONLY)

debezium: $(SYNCED) ## compare the change log with what Debezium's embedded engine writes
	$(UV) sync --frozen --quiet --group bench
	$(BIN)/pytest tests/systems/changelog/against_debezium.py $(ARGS)

lake-readers: $(SYNCED) ## let Spark and Trino read a lake, and a REST catalog know it, by Maven's jars
	$(WITH_SERVERS) $(BIN)/pytest tests/pipeline/lakes_by_spark.py tests/pipeline/lakes_by_trino.py \
		tests/systems/lake/rest_catalog.py $(ARGS)

servers-up: $(SYNCED) ## start MySQL source and sink and MariaDB, and keep them up for tests
	$(BIN)/python -m tests.servers up

servers-down: $(SYNCED) ## stop what servers-up started
	$(BIN)/python -m tests.servers down

test-servers: $(SYNCED) ## run the tests that need MySQL or MariaDB, and no Spark or Airflow
	$(WITH_SERVERS) $(BIN)/pytest -m '(mysql or mariadb) and not spark and not airflow' $(ARGS)

test-spark: $(SYNCED) ## run the tests that start a Spark
	$(WITH_SERVERS) $(BIN)/pytest -m spark $(ARGS)

test-airflow: $(SYNCED) ## run the tests that need an Airflow
	$(WITH_SERVERS) $(BIN)/pytest -m airflow $(ARGS)

end-to-end: $(SYNCED) ## run the tests of the whole
	$(WITH_SERVERS) $(BIN)/pytest tests/end_to_end $(ARGS)

soak: $(SYNCED) ## kill a pipeline in the middle of every transition; SEEDS=20 times, or of =7,8
	$(WITH_SERVERS) CDC_SOAK_SEEDS=$(or $(SEEDS),5) $(BIN)/pytest -s tests/soak tests/spark/test_outage_rhythms.py $(ARGS)

sweep: $(SYNCED) ## compare every collation both families have, by brute force
	$(WITH_SERVERS) $(BIN)/pytest tests/systems/mysql/sweep_collations.py $(ARGS)

wheel: $(SYNCED) ## build the wheel into dist/
	$(UV) build --quiet --wheel --out-dir dist

clean: ## remove what was built, but for the environment
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find airflow_cdc_provider tests dags -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
