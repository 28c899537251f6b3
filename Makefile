# Two commands do all the set-up: `make demo` and `make test`. Each makes .venv once and reuses it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOCK   := constraints.txt

# The hunters of tests/fuzz, which `make test` lets look at 500 cases in all.
CASES ?= 1000
SEED  ?= 0

.PHONY: demo test docs fuzz lint types install lock clean

demo: install
	$(BIN)/normmatch samples --out demo/matches.png

test: lint types
	$(BIN)/python -m pytest --cov=normmatch.model --cov=normmatch.training.losses --cov-fail-under=90

# The site, in the folder site.
docs: install
	$(BIN)/python -m mkdocs build --strict

fuzz: install
	FUZZ_CASES=$(CASES) FUZZ_SEED=$(SEED) $(BIN)/python -m pytest tests/fuzz

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

install: $(STAMP)

# Exactly the versions of the lock, also of what builds the package; of torch whichever build pip finds, CPU or GPU.
$(STAMP): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; say which with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint $(LOCK) pip hatchling editables
	$(BIN)/python -m pip install --quiet --constraint $(LOCK) --no-build-isolation --editable '.[dev]'
	@touch $(STAMP)

# The newest versions that pyproject.toml admits, as plain name==version lines. Run `make test` before they are kept.
lock:
	$(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet --upgrade pip
	.lock-venv/bin/python -m pip install --quiet '.[dev,peers]' hatchling editables
	.lock-venv/bin/python -m pip freeze --all | grep -v '^normmatch' | sed 's/+.*//' > $(LOCK).new
	mv $(LOCK).new $(LOCK)
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) .lock-venv demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
