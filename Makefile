PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test coverage test-slow test-gpu check format docs site site-serve clean help

help:
	@echo "make demo    install and train on handwritten digits, under a minute of CPU"
	@echo "make test    install and run the tests"
	@echo "make check   ruff and mypy;  make format  let ruff rewrite"
	@echo "make docs    regenerate the README's numbers, the page of results and the reference"
	@echo "make site    build the documentation site to site/;  make site-serve  show it while writing"

demo: $(BIN)/.base
	$(BIN)/contune train

test: $(BIN)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

coverage: $(BIN)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term

test-slow: $(BIN)/.dev
	$(BIN)/pytest -m slow

test-gpu: $(BIN)/.dev
	$(BIN)/pytest -m gpu

check: $(BIN)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(BIN)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(BIN)/.base
	$(BIN)/python docs/build.py
	cd docs && ../$(BIN)/python -m website --reference

site site-serve: export NO_MKDOCS_2_WARNING = 1
# The link to the repository: origin as a web address, or none if origin is a local folder.
site site-serve: export REPOSITORY = $(shell git remote get-url origin 2>/dev/null | \
	sed -nE 's,\.git$$,,; s,^(https?://|ssh://git@|git@)([^:/]+)[:/],https://\2/,p')
site: $(BIN)/.docs
	cd docs && ../$(BIN)/python -m website
	$(BIN)/mkdocs build --strict

site-serve: $(BIN)/.docs
	cd docs && ../$(BIN)/python -m website
	$(BIN)/mkdocs serve

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(BIN)/.base: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing contune into .venv (once; a few minutes on a new machine)"
	$(PIP) --editable .
	@touch $@

$(BIN)/.dev: $(BIN)/.base
	@echo "installing the development tools into .venv"
	$(PIP) --editable '.[dev]'
	@touch $@

$(BIN)/.docs: $(BIN)/.base
	@echo "installing mkdocs into .venv"
	$(PIP) --editable '.[docs]'
	@touch $@

clean:
	rm -rf .venv
