# Every target sets up what it needs in .venv, from the lock files alone; a second run finds it there.
SHELL := /bin/sh
PY := .venv/bin/python
UV := 0.13.9

# Two targets at once would set up the same environment twice.
.NOTPARALLEL:
.PHONY: help demo serve test check bench prove prove-long mutate fuzz openapi lock clean moved

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: .venv/run.stamp ## the whole story on real processes, printed
	.venv/bin/subgrant demo

serve: .venv/run.stamp ## the service on 127.0.0.1:8700, with a database in a file
	.venv/bin/subgrant serve

test: .venv/dev.stamp .venv/apart.stamp .venv/node.stamp ## every test
	$(PY) -m pytest --numprocesses=logical --maxprocesses=4 --dist=worksteal $(ARGS)

check: .venv/dev.stamp ## lint, format, types, layers, and the tests marked `gate`
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo --no-cache
	$(PY) -m pytest -q -m gate

prove: .venv/dev.stamp ## the prover of narrowing against a solver, in two minutes or ARGS="--cases 20000 --seed 7"
	$(PY) -m prove $(ARGS)

prove-long: .venv/dev.stamp ## the same for a night, and the properties of constraints with a million cases
	$(PY) -m prove --cases 60000 $(ARGS)
	PROVE_TIMES=50 $(PY) -m pytest --numprocesses=logical --maxprocesses=4 --dist=worksteal --timeout=0 \
		--hypothesis-profile=explore tests/core/test_constraint_properties.py

mutate: .venv/dev.stamp ## faults put into the rules one by one, and which no test notices; or ARGS=core/budget.py
	$(PY) -m tools.mutate $(ARGS)

fuzz: .venv/dev.stamp ## grants and rules that nobody would write, for a minute or ARGS="--seconds 600"
	$(PY) -m tests.fuzz $(ARGS)

bench: .venv/dev.stamp ## the benchmarks
	$(PY) -m bench $(ARGS)

openapi: .venv/run.stamp ## write openapi/openapi.json anew
	mkdir -p openapi
	$(PY) -m app.cli openapi > openapi/openapi.json.new
	mv openapi/openapi.json.new openapi/openapi.json

# Keeps what is locked and still fits; `make lock ARGS=--upgrade` looks for newer versions of the rest.
COMPILE := .venv/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --annotation-style line \
	--custom-compile-command "make lock" $(ARGS)
COMPILE_PROJECT := $(COMPILE) pyproject.toml --extra demo --group build

lock: .venv/dev.stamp ## write the lock files anew from pyproject.toml, and tests/clients/js/package.json
	$(PY) -m pip install -qq uv==$(UV)
	$(COMPILE_PROJECT) --output-file requirements.lock
	$(COMPILE_PROJECT) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	$(COMPILE) --group apart --output-file requirements-apart.lock
	sh tools/setup-node.sh install --package-lock-only

clean: ## remove .venv and whatever the tools left
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist tests/clients/js/node_modules
	find app bench migrations prove tests tools -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# A virtual environment does not survive a move of its folder.
ifneq ($(shell cat .venv/folder 2>/dev/null),$(CURDIR))
.venv/run.stamp .venv/dev.stamp .venv/apart.stamp .venv/node.stamp: moved
endif

.venv/run.stamp: requirements.lock pyproject.toml tools/setup.sh
	@sh tools/setup.sh requirements.lock
	@touch $@

.venv/dev.stamp: requirements-dev.lock pyproject.toml tools/setup.sh
	@sh tools/setup.sh requirements-dev.lock
	@touch .venv/run.stamp $@

# What tests run as programs of their own: see the group `apart` in pyproject.toml.
.venv/apart.stamp: requirements-apart.lock | .venv/dev.stamp
	@echo "Installing what requirements-apart.lock says into .venv/apart" >&2
	@$(PY) -m venv --clear .venv/apart
	@.venv/apart/bin/python -m pip install -qq --disable-pip-version-check --no-input --require-hashes -r $<
	@touch $@

.venv/node.stamp: tests/clients/js/package.json tests/clients/js/package-lock.json tools/setup-node.sh | .venv/dev.stamp
	@echo "Installing what tests/clients/js/package-lock.json says beside it" >&2
	@sh tools/setup-node.sh ci >/dev/null
	@touch $@
