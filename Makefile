# Two commands do all the set-up: `make quickstart` and `make test`.
# `make test-all` runs what `make test` leaves out.
PYTHON ?= python3
VENV ?= .venv
PIP = $(VENV)/bin/pip install --quiet --disable-pip-version-check
WORKDIR ?= runs/quickstart
# Of an accelerator: make quickstart JAX='jax[cuda13]'
JAX ?=
# Modules of tests are independent: one process per core.
# The longest are first, by the seconds in tests/seconds.json, which
# TEST_ARGS=--record-seconds writes.
PYTEST = $(VENV)/bin/python -m pytest -n auto --dist loadscope --no-loadscope-reorder
# Instruction sets for which the numeric tests are compiled again; `make test`
# takes the processor's best. This one has no fused multiply-add; AVX and AVX2
# lie between: make test-all ISAS='SSE4_2 AVX2'
ISAS ?= SSE4_2
NUMERIC = $(addprefix tests/,engine evaluation methods models)

# XLA's compilers for accelerators, beside the packages of a run.
PLAN ?= $(VENV)-plan

.PHONY: quickstart test test-fast test-all test-accelerators lint docs wheel clean

quickstart: $(VENV)/.runtime
	$(VENV)/bin/python launch.py --config=configs/quickstart.py --workdir=$(WORKDIR)

test: $(VENV)/.development
	$(MAKE) --no-print-directory -j 2 lint test-fast

test-fast: $(VENV)/.development
	$(PYTEST) -m "not slow" $(TEST_ARGS)

test-all: $(VENV)/.development
	$(PYTEST) -m slow $(TEST_ARGS)
	for isa in $(ISAS); do \
	  echo "numeric tests for $$isa"; \
	  XLA_FLAGS="--xla_cpu_max_isa=$$isa" $(PYTEST) -q -m "numeric and not slow" $(NUMERIC) || exit 1; \
	done

test-accelerators: $(PLAN)/.plan
	JAX_PLATFORMS=cpu $(PLAN)/bin/python -m benchmarks.compile_for

lint: $(VENV)/.development
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# Needs no network but for the installation; warnings are errors.
docs: $(VENV)/.documentation
	$(VENV)/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# Of the commit alone: what lies beside it, as of an earlier build, and the modes
# of files do not count. With the same setuptools it is the same bytes.
wheel: $(VENV)/.runtime
	set -e; umask 022; place=$$(mktemp -d); trap 'rm -rf "$$place"' EXIT; \
	git -c tar.umask=022 archive HEAD | tar -x -C "$$place"; \
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
	  $(VENV)/bin/pip wheel "$$place" --no-deps --quiet --wheel-dir dist

$(VENV)/.runtime: requirements.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt $(JAX)
	touch $@

$(VENV)/.development: requirements-dev.txt $(VENV)/.runtime
	$(PIP) -r requirements-dev.txt
	touch $@

$(PLAN)/.plan: requirements.txt
	test -x $(PLAN)/bin/python || $(PYTHON) -m venv $(PLAN)
	$(PLAN)/bin/pip install --quiet --disable-pip-version-check \
	  -r requirements.txt 'jax[cuda12-local,tpu]'
	touch $@

$(VENV)/.documentation: requirements-docs.txt $(VENV)/.runtime
	$(PIP) -r requirements-docs.txt
	touch $@

clean:
	rm -rf $(VENV) $(PLAN) .jax_cache .pytest_cache .mypy_cache .ruff_cache docs/_build docs/notebooks docs/api/generated dist build
