# make demo   install the core and run a budgeted search that writes its result folder (demo/)
# make test   install everything the tests need and run them all
# make env    .venv with every extra that the tests use

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test env clean

demo: $(VENV)/core.stamp
	$(BIN)/zerolm search llama --max-params 125M --max-kv-bytes 32MB --context 2048 --out demo --force

test: $(VENV)/env.stamp
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=worksteal --cov --cov-report=
	$(BIN)/coverage report --fail-under=85

env: $(VENV)/env.stamp

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

# Torch comes first and pinned: anything that depends on it would bring another build. llama-cpp-python is
# compiled, which takes minutes and needs a C++ compiler; nothing else does.
$(VENV)/env.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[fast,nsga2,ray,torch]' pytest pytest-cov pytest-xdist hypothesis mypy ruff types-PyYAML
	$(PIP) gguf protobuf sentencepiece llama-cpp-python || echo 'llama-cpp-python was not built: tests of GGUF are skipped'
	touch $@ $(VENV)/core.stamp

clean:
	rm -rf $(VENV) demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
