# make train: set up and watch an agent learn.  make test: set up and run every check.
# make docs: build the documentation into build/site. make tables: renew its tables and figures.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
QUIETLY := -q --disable-pip-version-check --no-compile -c constraints.txt
INSTALL := $(BIN)/python -m pip install $(QUIETLY)

.PHONY: train test types tests docs tables setup rendering browser format slow clean

train: setup
	$(BIN)/planet-bayes train --preset quick $(ARGS)

test: setup browser
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j 2 types tests

types:
	$(BIN)/mypy

tests:
	$(BIN)/python -m pytest -q -n 2 $(ARGS)

docs: setup $(VENV)/.docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

tables: setup
	$(BIN)/python scripts/tables.py

slow: setup
	$(BIN)/python -m pytest -q -m slow $(ARGS)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(VENV)/.installed rendering

# Without --no-compile, pip spends a third of the time on modules that nobody imports.
$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt setup.py $(wildcard src/planet_bayes/models/kernels/cpp/*)
	$(INSTALL) -e '.[all,cluster,dev]'
	@touch $@

# The pip of constraints.txt resolves the packages in half the time of older ones. The machine's own
# pip installs it, or else ensurepip's, which some Debian machines lack.
$(VENV)/.created:
	@echo "setting up $(VENV) (some minutes, the first time) …"
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 13) else "the control suite needs Python 3.11 or 3.12; run: make PYTHON=python3.11 …")'
	@{ $(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(BIN)/python install $(QUIETLY) pip 2>/dev/null; } || { \
		$(PYTHON) -m venv --clear $(VENV) && $(INSTALL) --upgrade pip; }
	@touch $@

$(VENV)/.docs-installed: $(VENV)/.installed
	$(INSTALL) -e '.[docs]'
	@touch $@

rendering: $(VENV)/.installed
	@sh scripts/rendering.sh $(BIN)/python

browser:
	@sh scripts/chromium.sh

clean:
	rm -rf $(VENV) build src/*.egg-info src/planet_bayes/models/kernels/*.so .mypy_cache .pytest_cache .ruff_cache
