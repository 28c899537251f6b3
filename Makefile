# Two commands do all the set-up: `make demo`, with what matching needs, and `make test`, with everything. Each makes
# .venv once and reuses it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.core
ALL    := $(VENV)/.all
LOCK   := constraints.txt
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK)

# The hunters of tests/fuzz, which `make test` lets look at 500 cases in all.
CASES ?= 1000
SEED  ?= 0

.PHONY: demo test docs fuzz lint types install wheel lock clean

demo: $(CORE)
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

install: $(ALL)

# One file that installs anywhere: pip install 'dist/normmatch-....whl[app]'
wheel: $(CORE)
	$(BIN)/python -m hatchling build -t wheel

# Exactly the versions of the lock, also of what builds the package. What is never run need not be compiled.
$(CORE): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; say which with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile hatchling editables
	$(PIP) --no-compile --no-build-isolation --editable '.[app]'
	@touch $(CORE)

# Of torch whichever build pip finds, CPU or GPU.
$(ALL): $(CORE)
	$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $(ALL)

# The newest versions that pyproject.toml admits, as plain name==version lines. Run `make test` before they are kept.
lock:
	$(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet --upgrade pip
	.lock-venv/bin/python -m pip install --quiet '.[dev,peers]' hatchling editables
	.lock-venv/bin/python -m pip freeze --all | grep -v '^normmatch' | sed 's/+.*//' > $(LOCK).new
	mv $(LOCK).new $(LOCK)
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) .lock-venv demo dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
