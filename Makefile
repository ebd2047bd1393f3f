# make demo     install the core and search a space within budgets: the result is in demo/
# make test     install everything the tests need and run them all but what make docs and make package do
# make test-all the same on every model family, not on those alone that cover what families can be
# make docs     build the documentation in site/, run all that it shows, test its links and its style
# make package  build the package, install it alone and test it there
# make env      .venv with every extra that the tests use

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# So that mypy and pyright find the sources of an editable install.
EDITABLE := --config-settings editable_mode=compat --editable

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=worksteal
TESTS := -m 'not built'

.PHONY: demo docs package test test-all test-lab test-others env clean

demo: $(VENV)/core.stamp
	$(BIN)/zerolm search llama --max-params 500M --max-kv-bytes 80MB --context 4096 --out demo --force

docs: $(VENV)/env.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(PYTEST) -m built tests/test_documentation.py tests/test_prose.py

package: $(VENV)/env.stamp
	$(BIN)/python -m pytest -m built tests/test_package.py

test: $(VENV)/env.stamp
	$(BIN)/ruff check .
	$(PYTEST) $(TESTS) --cov --cov-report=
	$(BIN)/coverage report --fail-under=85

test-all: TESTS += --all-families
test-all: test

# The two parts of make test, for two machines beside each other.
test-lab: $(VENV)/env.stamp
	$(PYTEST) $(TESTS) tests/lab

test-others: TESTS += --ignore=tests/lab
test-others: test

env: $(VENV)/env.stamp

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Not compiled ahead: most of scipy is never imported, and the first report comes twelve seconds sooner.
$(VENV)/core.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --no-compile $(EDITABLE) .
	touch $@

# Torch comes first and pinned: anything that depends on it would bring another build.
$(VENV)/torch.stamp: constraints.txt | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	touch $@

# What a machine may lack: llama-cpp-python is compiled, which takes minutes and needs a C++ compiler; the pages
# are tested in Chromium. Without them their tests are skipped.
$(VENV)/env.stamp: pyproject.toml constraints.txt $(VENV)/torch.stamp
	$(PIP) $(EDITABLE) '.[dev]'
	$(PIP) gguf protobuf sentencepiece llama-cpp-python || echo 'llama-cpp-python was not built: tests of GGUF are skipped'
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get && apt-get update \
	  && apt-get install --yes --no-install-recommends chromium; } > /dev/null 2>&1 \
	  || echo 'there is no Chromium: tests of pages are skipped'
	touch $@ $(VENV)/core.stamp

clean:
	rm -rf $(VENV) demo site build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
