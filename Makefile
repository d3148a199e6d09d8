# `make repro` and `make test` do all set-up on a fresh machine: Python 3.11 to 3.13 is all they need.
PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(PATH)

.PHONY: repro test lint lock plots-page clean

repro: .venv/ready ## run the pipeline on the params of params.yaml; only what changed runs
	dvc repro

test: .venv/ready ## run all tests
	python -m pytest

lint: .venv/ready ## check style and types
	ruff check .
	ruff format --check .
	pyright

.venv/ready: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "caploc needs Python 3.11 to 3.13; name one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	python -m pip install --quiet --requirement requirements.lock
	python -m pip install --quiet --no-deps --editable .
	touch .venv/ready

lock: ## resolve pyproject.toml anew into requirements.lock
	$(PYTHON) -m venv --clear .venv
	python -m pip install --editable '.[dev]' 'torch==2.13.0'
	python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock
	touch .venv/ready

plots-page: .venv/ready ## remake the offline page of `dvc plots` from the Vega release in vl-convert
	python -m caploc.reporting.page

clean: ## remove the environment and what the pipeline made; the model cache and the measurements stay
	rm -rf .venv artifacts reports/plots reports/figures reports/report.html
