# Needs git, make, Python 3.11 or newer, and Java 17 or newer; the rest is fetched on first use.

.DEFAULT_GOAL := help
.PHONY: help demo docs test suite lint audit ui grid versions model mutants torture live faults bench soak java gcc

# uv from PATH if it runs, else one of our own in .tools, installed when first needed.
UV := $(shell uv --version >/dev/null 2>&1 && command -v uv || echo .tools/bin/uv)
UV_HERE := $(filter .tools/bin/uv,$(UV))
RUN := $(UV) run --frozen --quiet
# Any Python will do for a look at Java, before anything is fetched.
PYTHON := $(shell command -v python3 || echo "$(UV) run --no-project python")
PORT ?= 3000
# Modules are compiled once, also where the environment says not to: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F '|' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: java $(UV_HERE) .venv ## Run the shop pipelines over the shipped capture and compare the tables with the truth
	@$(RUN) python data/shop/demo.py

# Tables of tests lie in memory where there is room, until all have passed: a sync costs 0.01 ms there, 6 ms on a disk.
# Each clone has its own folder there: tests of two may run at a time.
CLONE := $(shell echo "$(CURDIR)" | cksum | cut -d ' ' -f 1)
MEMORY := $(shell test "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 8000000 2>/dev/null && echo /dev/shm/ebbtide-tests-$(CLONE))
IN_MEMORY := $(if $(MEMORY),mkdir -p $(MEMORY) && env PYTEST_DEBUG_TEMPROOT=$(MEMORY))

# Four at a time, on two cores too: runs that Dagster launches and those on Spark mostly wait.
# To collect the tests takes one core for most of a minute: what must be done before them is done on the others meanwhile.
BEFORE := --beside ".ci/packages $(if $(CI),,|| true)" --beside "$(MAKE) --no-print-directory lint"
# A machine that is thrown away writes no archive of Spark's classes, 45 CPU seconds: four starts save 20. A file beside Spark's settings prevents it.
ONCE := $(if $(CI),SPARK_CONF_DIR=$(CURDIR)/tests/support/clusters/conf)
test: java .venv ## Run linters, type checks and all tests; what needs a program that cannot be brought here is left out, and named
	$(IN_MEMORY) env $(ONCE) $(RUN) pytest -q --forks 4 $(BEFORE) --durations 20
	@$(if $(MEMORY),rm -rf $(MEMORY))

# What CI runs side by side; `make test` runs all of it.
suite: java .venv
	$(IN_MEMORY) env $(ONCE) $(RUN) pytest -q --forks 4 -m "$(MARKS) and not grid and not model" $(TESTS)
	@$(if $(MEMORY),rm -rf $(MEMORY))

lint: $(UV_HERE) .venv ## Run linters and type checks only
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy ebbtide pipelines assets resources expectations

audit: $(UV_HERE) ## Look the locked packages up among known vulnerabilities
	@$(PYTHON) .ci/audit $(UV)

ui: java $(UV_HERE) .venv ## Start Dagster on http://127.0.0.1:3000 (another port: make ui PORT=3001)
	@mkdir -p .dagster
	@test -e .dagster/dagster.yaml || ln -sf ../dagster.yaml .dagster/dagster.yaml
	DAGSTER_HOME="$(CURDIR)/.dagster" $(RUN) dagster dev -w workspace.yaml -h 127.0.0.1 -p $(PORT)

docs: $(UV_HERE) .venv ## Serve the documentation on http://127.0.0.1:8000 (another port: make docs PORT=8001)
	$(RUN) zensical serve --dev-addr 127.0.0.1:$(if $(filter command line,$(origin PORT)),$(PORT),8000)

grid: java $(UV_HERE) .venv ## Run the long tests, those marked grid
	$(RUN) pytest -q -m grid -o faulthandler_timeout=0

# Each environment is built by uv in .environments, from what a user would install: 1 to 2 GB.
versions: java $(UV_HERE) .venv ## Run the shop on each Spark, and with the oldest and the newest packages (one: ONLY=4.1)
	$(RUN) pytest -q -m grid -o faulthandler_timeout=0 -k "$(ONLY)" tests/test_versions.py

model: $(UV_HERE) .venv ## Walk states beside their reference, at length
	$(RUN) pytest -q -m model -o faulthandler_timeout=0

# The mutants are made in a folder of the same name; what was found there is kept, and made again where code or tests changed.
mutants: $(UV_HERE) .venv ## Test the tests with mutants of the code (some only: ONLY=ebbtide/formats/_columns.py)
	$(UV) run --frozen --group mutants python tests/mutants.py $(ONLY)

# Hours, if all is to be run; what was run is noted in a folder of the same name, and not run again.
torture: java gcc $(UV_HERE) .venv ## Kill real processes at every place, and compare the tables (for a while only: MINUTES=30); needs gcc
	$(RUN) python tests/torture/torture.py --minutes $(or $(MINUTES),600)

live: java $(UV_HERE) .venv ## Postgres, Debezium, Kafka and runs that go on, under load and kill -9 (MINUTES=5)
	$(RUN) python tests/live/live.py --minutes $(or $(MINUTES),5)

faults: java .venv ## Fifty pipelines by Dagster, with faults made for real, as root (MINUTES=60 PIPELINES=50)
	$(RUN) python tests/live/fifty.py --minutes $(or $(MINUTES),60) --pipelines $(or $(PIPELINES),50)

bench: java $(UV_HERE) .venv ## Measure against a plain MERGE
	$(RUN) python benchmarks/naive_merge.py

soak: java $(UV_HERE) .venv ## 300 steps beside their maintenance in Dagster, two hours beside a topic (MINUTES=...), ten thousand tiny steps; with plots
	$(UV) run --frozen --group bench python benchmarks/maintained.py --plot benchmarks/maintained.svg
	$(UV) run --frozen --group bench python benchmarks/live_soak.py --minutes $(or $(MINUTES),120) --plot benchmarks/live-soak.svg
	$(UV) run --frozen --group bench python benchmarks/steps.py --steps 10000 --largest 50 --plot benchmarks/soak.svg

java: ## Check that Java 17 or newer is there; JAVA_HOME goes before PATH
	@$(PYTHON) -I ebbtide/java.py

gcc: ## Check that gcc is there, which compiles what has system calls fail
	@command -v gcc >/dev/null || { echo "gcc is not installed: it compiles tests/support/crashes/calls.c. On Debian and Ubuntu: apt install gcc libc6-dev" >&2; exit 1; }

.venv: | $(UV_HERE)
	@echo "Fetching Python packages into .venv; the first time this takes minutes."
	@$(UV) sync --frozen --quiet

.tools/bin/uv:
	@python3 -m venv --clear .tools || { echo "python3 cannot make a virtual environment. Install uv, or on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@.tools/bin/pip install --quiet --disable-pip-version-check uv
