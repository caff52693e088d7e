# Two commands do all the set-up: `make quickstart` and `make test`.
PYTHON ?= python3
VENV ?= .venv
PIP = $(VENV)/bin/pip install --quiet --disable-pip-version-check
WORKDIR ?= runs/quickstart
# Tests are independent: one process per core.
TEST_ARGS ?= -n auto -m "not slow"

.PHONY: quickstart test lint clean

quickstart: $(VENV)/.runtime
	$(VENV)/bin/python launch.py --config=configs/quickstart.py --workdir=$(WORKDIR)

test: $(VENV)/.development lint
	$(VENV)/bin/python -m pytest $(TEST_ARGS)

lint: $(VENV)/.development
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

$(VENV)/.runtime: requirements.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt
	touch $@

$(VENV)/.development: requirements-dev.txt $(VENV)/.runtime
	$(PIP) -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) .jax_cache .pytest_cache .mypy_cache .ruff_cache
