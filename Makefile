# `make demo` and `make test` do everything by themselves on a fresh Debian with python3, pip and make.
# What is demonstrated and tested is the installed wheel, never the source tree.

PYTHON ?= python3
# More arguments for pytest, the demo or the benchmark: make test ARGS="-k names"
ARGS ?=
# Most tests wait for a server or a clock: eight at a time keep two cores busy, and leases are still renewed in time.
# Tests of one module stay together, since they share servers; the longest modules begin (tests/support/longest.py).
BY_MODULE := --dist loadscope --no-loadscope-reorder
SPREAD := -n 8 $(BY_MODULE)
# Tests that say nothing about the library at run time: of the tests' own servers (`make harness`) and of what a type
# checker says to users (`make types`).
APART := --ignore=tests/harness --ignore=tests/typing
# What pytest ends with if ARGS chose no test of this part.
NONE := [ $$? -eq 5 ]

VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.done
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Directories too: their time changes when a file is removed.
SOURCES := $(shell find src -not -name '*.pyc' -not -name __pycache__)
# Neither the caller's PYTHONPATH nor src/ may stand in front of the wheel. And without bytecode, each of the hundreds of
# processes of the tests would compile what it imports.
CLEAN_PATH := env -u PYTHONPATH -u PYTHONHOME -u PYTHONDONTWRITEBYTECODE
PYTEST := $(CLEAN_PATH) $(BIN)/python -m pytest
CODE := $(wildcard src tests bench tools examples)
TEXTS := $(wildcard docs .github .ci *.md Makefile pyproject.toml .pre-commit-config.yaml)
# What `make coverage` runs: quick, and it reaches most of the library. Coverage traces the program, so not those tests
# that trace it too (to interrupt it at every step), count what it leaves behind, measure its cost, or fork it in the
# middle of something; and in the test's own process only, so not those of which other processes do the work.
MEASURED := $(addprefix tests/,compat config conformance core decorator fencing memory observer primitives sqlite)
# Engines that the folders above do not reach.
MEASURED += tests/redis/test_redis_sentinel.py tests/redis/test_redis_sentinel_clients.py tests/redis/test_redis_urls.py
UNMEASURED := not interrupt and not fork and not leak and not cost
UNMEASURED += and not processes and not bounded_buffer and not frozen_holder and not django and not displaced and not sqlite_exit

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test harness soak stalls coverage lint types check api wheel sdist sim interop
.PHONY: bench bench-check
.PHONY: clean
.PHONY: redis zookeeper postgres compiler jdk

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DONE)/dev $(DONE)/wheel ## the virtual environment, with the wheel and all tools in it

demo: $(DONE)/wheel ## see it work
	$(CLEAN_PATH) $(BIN)/holdfast demo $(ARGS)

test: setup redis zookeeper postgres compiler $(if $(ARGS),,$(DONE)/bytecode) ## all tests, against the wheel
	$(PYTEST) $(SPREAD) $(APART) -m 'not alone and not busy and not soak' $(ARGS) || $(NONE)
	@# Not beside the others: simulations compute all the time, and those have leases to renew.
	$(PYTEST) -n 2 --dist worksteal --timeout=600 -m 'busy and not soak' $(ARGS) || $(NONE)
	$(PYTEST) $(APART) -m 'alone and not soak' $(ARGS) || $(NONE)

harness: setup redis zookeeper postgres compiler ## tests of the tests' own servers, proxies and layout
	$(PYTEST) $(SPREAD) tests/harness -m 'not soak' $(ARGS) || $(NONE)

# Traced, a program takes several times the time: fewer at once, or short leases run out before they are renewed.
coverage: setup redis zookeeper postgres compiler ## lines and branches that the quick tests reach, with a floor
	$(PYTEST) -n 4 $(BY_MODULE) -m 'not alone and not busy and not soak' -k '$(UNMEASURED)' --cov --cov-report=term:skip-covered $(MEASURED)

# Pytest compiles tests in its own way. Processes that start together would each compile all of them.
$(DONE)/bytecode: $(shell find tests -name '*.py') | setup
	@printf '%s\n' tests/*/ | xargs -n 4 -P 2 $(PYTEST) --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

# What a smaller case of the same test in `make test` shows, many times over.
soak: setup redis zookeeper postgres compiler ## the long repetitions of some tests
	$(PYTEST) -n 2 --dist worksteal --timeout=3600 -m soak $(ARGS) || $(NONE)

# What a busy machine does now and then, all the time. The first part of `make test`, in some 11 minutes.
stalls: setup redis zookeeper postgres compiler ## tests whose processes are stopped for a moment, again and again
	$(CLEAN_PATH) $(BIN)/python -m tools.stalls $(BIN)/python -m pytest $(SPREAD) $(APART) -m 'not alone and not busy and not soak' $(ARGS)

lint: $(DONE)/dev ## ruff: rules and format; codespell
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/codespell $(CODE) $(TEXTS)

types: setup ## mypy, strict; what a type checker says to users
	$(CLEAN_PATH) $(BIN)/mypy $(filter-out examples,$(CODE))
	$(PYTEST) -n 2 tests/typing

check: lint types test harness ## lint, types, test and harness

api: setup ## docs/reference/public-api.txt, from the wheel
	$(CLEAN_PATH) $(BIN)/python -m tools.public_api >docs/reference/public-api.txt

wheel: $(DONE)/wheel ## dist/holdfast_locks-*.whl
	@ls dist/*.whl

sdist: $(DONE)/build ## dist/holdfast_locks-*.tar.gz
	rm -f dist/*.tar.gz
	$(BIN)/hatchling build -t sdist -d dist

# A peer that cannot be installed here is named in the results; the others are measured.
bench: setup redis zookeeper ## measure beside the peers, a quarter of an hour on an otherwise idle machine; ARGS="--write"
	$(PIP) install --group bench
	$(PIP) install --group bench-compiled || echo 'no valkey-glide for this platform: it is not measured'
	$(CLEAN_PATH) $(BIN)/python -m bench $(ARGS)

bench-check: setup redis ## count what common operations cost, and compare; ARGS="--record" stores it
	$(CLEAN_PATH) $(BIN)/python -m bench.check $(ARGS)

# Twice the seeds of `make test`, which keep a number of their own in the environment: SIM_SEEDS=5000 make sim
sim: setup ## the simulated core, many seeds
	SIM_SEEDS=$${SIM_SEEDS:-300} $(PYTEST) -n 2 --dist worksteal tests/simulation -m 'not soak' $(ARGS)

interop: setup redis zookeeper jdk ## beside Java programs with Redisson and Curator, which Maven downloads; 10 minutes
	INTEROP=1 $(PYTEST) -n 2 --dist loadscope tests/interop -m 'not alone and not soak' $(ARGS) || $(NONE)
	INTEROP=1 $(PYTEST) tests/interop -m 'alone and not soak' $(ARGS) || $(NONE)

clean: ## remove what make made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Asked for at each run: it costs nothing where they are there.
redis zookeeper postgres compiler jdk:
	@tools/bootstrap $@

$(DONE)/venv: tools/bootstrap
	@tools/bootstrap venv $(PYTHON) $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'
	@mkdir -p $(DONE) && touch $@

$(DONE)/build: $(DONE)/venv pyproject.toml
	$(PIP) install --group build
	@touch $@

$(DONE)/dev: $(DONE)/venv pyproject.toml
	$(PIP) install --group dev
	@touch $@

# Dependencies are resolved when pyproject.toml changed; a change of the sources only puts the new wheel in.
$(DONE)/wheel: $(DONE)/build pyproject.toml LICENSE README.md $(SOURCES)
	rm -f dist/*.whl
	$(BIN)/hatchling build -t wheel -d dist
	@# The distribution was called holdfast once. Installed beside it, both would own the same files.
	@$(PIP) uninstall --yes holdfast 2>/dev/null
	@[ $(DONE)/dependencies -nt pyproject.toml ] || { set -x; $(PIP) install "$$(ls dist/*.whl)[all]"; }
	$(PIP) install --no-deps --force-reinstall dist/*.whl
	@touch $(DONE)/dependencies $@
