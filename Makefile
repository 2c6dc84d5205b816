# Every chore is one word; CI uses the same words.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

APT := qemu-system-x86 qemu-utils mmdebstrap e2fsprogs openssh-client cpio python3-venv shellcheck
COMMANDS := qemu-system-x86_64 qemu-img mmdebstrap mke2fs ssh-keygen cpio shellcheck
UV := $(shell command -v uv || echo .tools/bin/uv)
RUN := $(UV) run --frozen --no-sync
export UV_PYTHON_DOWNLOADS := never
# Deploys and tests start many Python processes: without bytecode each of them compiles every module anew.
unexport PYTHONDONTWRITEBYTECODE
INVENTORY ?= inventories/lab.py
export RACKPROOF_SAMPLES ?= $(realpath ../shared/samples)

.PHONY: help setup system lint test test-unit test-exhaustive test-wheel test-lab test-long golden certify certify-seeds lab-up lab-down clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: system .venv/.ready ## install what the kit needs: system packages (apt) and Python packages (uv)

system:
	@missing=""; for c in $(COMMANDS); do command -v $$c >/dev/null || missing="$$missing $$c"; done; \
	command -v uv >/dev/null || [ -x .tools/bin/uv ] || python3 -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	[ -z "$$missing" ] && exit 0; \
	sudo=""; [ "$$(id -u)" = 0 ] || sudo="sudo"; \
	echo "missing:$$missing"; \
	echo "installing system packages: $$sudo apt-get install $(APT)"; \
	$$sudo apt-get update -qq; \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(APT) >/dev/null

.tools/bin/uv:
	@echo "installing uv into .tools/"
	@python3 -m venv .tools && .tools/bin/pip install -q --disable-pip-version-check uv

.venv/.ready: pyproject.toml uv.lock | $(filter .tools/bin/uv,$(UV))
	@$(UV) sync -q --frozen --compile-bytecode
	@touch $@

lint: .venv/.ready ## ruff, mypy and shellcheck
	@command -v shellcheck >/dev/null || $(MAKE) --no-print-directory system
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) python -m tests.shellcheck

test-unit: .venv/.ready ## tests without network and rack
	@$(RUN) pytest tests/unit tests/fuzz -m 'not slow and not exhaustive' -q -n auto --dist worksteal

test-exhaustive: .venv/.ready ## all cases of which test-unit tries a sample
	@$(RUN) pytest tests/unit tests/fuzz -m '(exhaustive or hypothesis) and not slow' --hypothesis-profile=exhaustive -q -n auto --dist worksteal

test-wheel: .venv/.ready ## the built wheel, installed in an environment of its own, in an empty folder
	@$(RUN) pytest tests/wheel -q

LAB_TESTS := pytest tests/lab -v --tb=short --show-capture=stdout --instafail --durations=25 --durations-min=10

test-lab: setup ## the virtual rack: boot, second deploy, drift and rollback, a stopped server, the wheel's certify killed and resumed
	@$(RUN) $(LAB_TESTS) -m 'not long'

test-long: setup ## every malformed input and signal; the virtual rack: every live fault, reboots, parity with testinfra, version sets, Slurm health checks
	@$(RUN) pytest tests/fuzz -m slow -q -n auto --dist worksteal
	@$(RUN) $(LAB_TESTS) -m long

test: setup test-unit test-exhaustive test-wheel test-lab ## test-unit, -exhaustive, -wheel and -lab, as CI runs them

golden: .venv/.ready ## write the expected plans of tests/data/plans again
	@$(RUN) python -m tests.unit.plan.golden

certify: setup lab-up ## the virtual rack from nothing to a certificate
	@$(RUN) rackproof certify $(INVENTORY)

SEEDS := hpe-apollo6500-weka dell-isilon-f800-dgx1 hitachi-v225g dell-scaling-little weka-inference-nvme-dram
SCALED := $(SEEDS:%=%-scaled)
SEED_RUNS := --output reports/seeds

certify-seeds: setup lab-up ## the five published systems, scaled to the virtual rack: one certificate each, one overview
	@$(RUN) rackproof overview $(INVENTORY) $(SCALED) $(SEED_RUNS) --forecast
	@for id in $(SCALED); do status=0; \
	echo "== $$id"; \
	$(RUN) rackproof certify $(INVENTORY) --architecture $$id $(SEED_RUNS) --continue || status=$$?; \
	[ $$status -lt 128 ] || exit $$status; done
	@$(RUN) rackproof overview $(INVENTORY) $(SCALED) $(SEED_RUNS)

lab-up: setup ## start the virtual rack
	@$(RUN) rackproof lab up

lab-down: .venv/.ready ## stop the virtual rack
	@$(RUN) rackproof lab down

clean: ## remove the rack's state, the environment and caches (not the image, not reports)
	@[ ! -x .venv/bin/rackproof ] || [ ! -e .lab/keeper.pid ] || $(RUN) rackproof lab down --now
	@rm -rf .lab .venv .tools .mypy_cache .pytest_cache .ruff_cache .hypothesis
