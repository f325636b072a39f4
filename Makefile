# `make demo` and `make test` need Python 3.11+, make and pip; they set up everything else in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types check bench constraints clean

demo: $(READY)
	$(BIN)/fedsrc demo
	@echo "(the fedsrc command is in $(BIN); activate it with: . $(BIN)/activate)"

test: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/pytest -n 2

bench: $(READY)
	$(BIN)/python benchmarks/population_l.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/speed.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,lint]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
