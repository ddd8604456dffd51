# make setup   .venv with everything installed (done once; again when the pins change)
# make run     one task: make run TASK="What is 23*47+11? Use the calculator."
# make test    all that CI checks: format, lint, types, tests with coverage; as many tests at once as there
#              are cores: some 12 minutes with two
# make test-deep   the property tests with 10,000 examples each: hours
# make torture   an agent at work is killed 200 times: some six minutes
# make fix     format and mend what can be mended
# make bench   the measurements, with what they compare with in an environment of its own; each prints a
#              table (make bench TRANSCRIPTS=FILE adds bench/tau.py, LOCOMO=FILE bench/locomo.py)
# make clean   back to a fresh checkout

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PEERS := bench/peers/.venv
PEERS_READY := $(PEERS)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup run test test-deep torture fix bench clean
.DEFAULT_GOAL := setup

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "perdure needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[embedded,mcp,acp,dev]'
	$(BIN)/perdure embedded install
	@touch $(READY)

run: $(READY)
	@$(BIN)/perdure run "$$TASK"
run: export TASK := $(value TASK)

test: $(READY)
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet --numprocesses auto --dist loadgroup --cov --cov-report=term

test-deep: $(READY)
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest --quiet --timeout 0 tests/memory tests/chat

fix: $(READY)
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

# Other libraries and we run in one process there, but never in the product's or the tests' environment.
$(PEERS_READY): pyproject.toml bench/peers/requirements.txt bench/peers/package.json
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --requirement bench/peers/requirements.txt --editable .
	@if command -v npm; then npm install --prefix bench/peers --no-audit --no-fund; \
	else echo "There is no npm here: bench/agents.py leaves pi out."; fi
	@touch $(PEERS_READY)

torture: $(READY)
	TORTURE_KILLS=200 $(BIN)/python -m pytest --quiet -s tests/scenarios/test_torture.py

bench: $(READY) $(PEERS_READY)
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/tokens.py $(PEERS)/bin/python
	$(BIN)/python bench/tool_choice.py
	$(PEERS)/bin/python bench/upkeep.py
	$(BIN)/python bench/prefix.py
	$(if $(TRANSCRIPTS),$(BIN)/python bench/tau.py "$$TRANSCRIPTS")
	$(BIN)/python bench/files.py
	$(if $(LOCOMO),$(PEERS)/bin/python bench/locomo.py "$$LOCOMO")
	$(PEERS)/bin/python bench/archive.py
	$(BIN)/python bench/facts.py
	$(BIN)/python bench/drift.py
	$(BIN)/python bench/agents.py
bench: export TRANSCRIPTS := $(value TRANSCRIPTS)
bench: export LOCOMO := $(value LOCOMO)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage $(PEERS) bench/peers/node_modules
