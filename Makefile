# Everything starts here: `make demo` to see it work, `make test` to check it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-long test-lowest bench bench-gpu lint clean

demo: $(VENV)/.installed  ## Pisces against FedBuff, Oort and FedAvg, in half a minute
	$(BIN)/pisces demo

test: $(VENV)/.dev lint  ## lint, types, tests and the branch coverage of the core
	$(BIN)/python -m pytest --numprocesses 2 --cov --cov-report= -m "not long"
	$(BIN)/python scripts/core_branches.py

test-long: $(VENV)/.dev  ## what takes minutes
	$(BIN)/python -m pytest --numprocesses 2 -m long

test-lowest: $(VENV)/.dev  ## the tests with the oldest libraries we claim to work with
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --constraint constraints-lowest.txt --editable '.[dev,watch]'
	.venv-lowest/bin/python -m pytest --numprocesses 2 -m "not long"

bench: $(VENV)/.dev  ## speed on this machine's cores, also beside peers: 45 minutes (PISCES_DATA: see benchmarks/README)
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/control.py
	$(BIN)/python benchmarks/checkpoints.py
	$(BIN)/python benchmarks/journal.py
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/flower.py
	$(BIN)/python benchmarks/watching_index.py
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/paper_mnist.py
	PYTHON=$(PYTHON) sh benchmarks/peers/make_envs.sh
	$(BIN)/python benchmarks/peers/compare.py

bench-gpu: $(VENV)/.dev  ## speed on this machine's GPU (PISCES_DATA: see benchmarks/README)
	$(BIN)/python benchmarks/gpu.py
	$(BIN)/python benchmarks/comparison.py

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .venv-lowest .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Pisces needs Python 3.11 or newer; say which: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing (torch is large: about a minute)"
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) --editable '.[dev,flower,ray,watch]'
	@touch $@
