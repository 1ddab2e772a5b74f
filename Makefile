# Bubbles from a fresh clone: `make demo` to see it, `make test` to prove it. What it makes lies in .venv/ and .demo/, beside caches and metadata of the tools.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test soak lint bench lock install-units clean

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
READY := .venv/ready
WORKERS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# No setting and no key of yours takes part in anything that is made here.
$(foreach name,$(filter-out BUBBLES_TEST_%,$(filter BUBBLES_%,$(.VARIABLES))),$(if $(filter install-units,$(MAKECMDGOALS)),,$(eval unexport $(name))))

help:  ## what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 8

demo: $(READY)  ## a real answer from a model on this machine, then a turn that works with files and a shell:  make demo [Q="..."]
	@docs/demo.sh

test: $(READY)  ## every test, the linters among them:  make test [ARGS="tests/spool -x"]
	@echo "make: the model that the tests ask (fetched once, 93 MB)"
	@BUBBLES_HOME="$(CURDIR)/.demo/home" bin/bubbles models fetch
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

soak: $(READY)  ## kill -9 thousands of times, 20 backups meanwhile, power cuts, disasters of their real length, an idle hour, a hundred thousand histories (three to four hours in all)
	@BUBBLES_TEST_SOAK=1 $(BIN)/python -m pytest -q tests/crash tests/disasters tests/pains tests/egress tests/workspace tests/kernel tests/sandboxes/attacks $(ARGS)

lint: $(READY)  ## ruff, mypy and shellcheck alone
	@$(BIN)/python -m pytest -q tests/test_linters.py

bench: $(READY)  ## how fast it is, beside others:  make bench [ARGS="turn help"]
	@$(BIN)/python bench $(ARGS)

lock: $(READY)  ## requirements.lock anew, from pyproject.toml
	@$(BIN)/python -m venv .venv/lock
	@.venv/lock/bin/python -m pip install -qq uv
	@.venv/lock/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--extra all --extra dev --custom-compile-command 'make lock' $(ARGS) -o requirements.lock pyproject.toml

install-units: $(READY)  ## keep this checkout's Bubbles on by systemd:  make install-units [ARGS="--now"]
	@bin/bubbles units install $(ARGS)

clean:  ## take away what was made here: .venv/, .demo/ and caches
	rm -rf .venv .demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Nothing enters .venv but what the lock names by hash: pip and setuptools first, so that what has to be built is built with those.
$(READY): requirements.lock pyproject.toml
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "make: Bubbles needs Python 3.11 or newer." \
		"Install it (Debian, Ubuntu: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) cannot make a virtual environment." \
		"Install its venv module (Debian, Ubuntu: apt-get install python3-venv) and try again" >&2; exit 1; }
	@echo "make: setting up .venv with $$($(PYTHON) --version), from requirements.lock (about 250 MB the first time)"
	@$(PYTHON) -m venv .venv
	@awk '/^[a-z].*==/ { wanted = /^(pip|setuptools)==/ } wanted' requirements.lock > .venv/first.lock
	@$(BIN)/python -m pip install -qq --require-hashes -r .venv/first.lock
	@$(BIN)/python -m pip install -qq --require-hashes --no-build-isolation -r requirements.lock
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q bubbles
	@touch $@
