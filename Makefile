# Two commands set everything up on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# For example -c constraints.txt, to choose the build of torch.
CONSTRAINTS ?=
# The package's own threads and the test processes share the cores; BLAS needs one.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test slow docs lint clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.plot: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[plot]"
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet $(CONSTRAINTS) -e ".[test-kan]"
	touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet $(CONSTRAINTS) -e ".[docs,kan]"
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $@

demo: $(VENV)/.plot  ## train a private classifier on public data and write its report
	$(BIN)/sklearn-dpop demo --output demo_output

test: $(VENV)/.test  ## unit tests, doctests and examples
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

slow: $(VENV)/.test  ## the long statistical checks alone
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

docs: $(VENV)/.docs  ## the site, in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

lint: $(VENV)/.dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) demo_output docs/_build docs/auto_examples docs/api/generated
