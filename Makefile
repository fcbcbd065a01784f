# The commands for contributors. They need make and Python >= 3.11. Everything else is installed into .venv, in the
# versions that constraints.txt pins. A stamp file in .venv records each dependency group that is installed; a group is
# installed again only after pyproject.toml or constraints.txt has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# The tests start hundreds of interpreters, so byte code is stored even where the environment asks Python not to.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
# What `make demo` and `make test` pass on: make demo DEMO="--streams 200 --seconds 3"; make test TEST="-k sse -x".
DEMO ?=
TEST ?=
# The processes that `make test` spreads the tests over: one more than a small machine has cores, because many tests wait
# for other processes. 0 runs them all in pytest's own process.
PROCESSES ?= 3
# The folder of recorded answers that `make conformance` reads; the length of `make soak`; where `make wheel` and
# `make docs` write.
CORPUS ?=
MINUTES ?= 5
# The pages whose code has 80 columns.
PAGES := README.md $(shell find docs -name '*.md')
PAGE_FORMAT := --isolated --line-length 80 --target-version py311 --quiet
DIST ?= dist
SITE ?= site

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench bench-quick figures instructions interop clients conformance ray soak chaos kills defects fuzz audit \
	docs wheel clean distclean

help: ## print this list
	@echo 'manystream: thousands of live language-model streams on one core'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  PYTHON=python3.13 chooses the interpreter that .venv is made with.'

demo: $(VENV)/.demo ## run a thousand live streams over four dialects, from the built-in simulator
	@$(BIN)/manystream demo $(DEMO)

test: $(VENV)/.test ## run the tests, in three processes: loopback only, a few minutes at most
	@$(PYTEST) -q -m "not soak and not servers and not cluster" -n $(PROCESSES) --dist worksteal $(TEST)

lint: $(VENV)/.lint ## run ruff, mypy strict and pyright strict, over the examples and the pages too
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff format --check $(PAGE_FORMAT) $(PAGES)
	@$(BIN)/mypy
	@$(BIN)/pyright --warnings
	@$(BIN)/python -m tests.docs.check_types

format: $(VENV)/.lint ## format the sources and the code of the pages
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff format $(PAGE_FORMAT) $(PAGES)

bench: $(VENV)/.bench ## run every benchmark and its peers; writes benchmarks/results.json and the pages
	@$(BIN)/python -m benchmarks

figures: $(VENV)/.bench ## write RESULTS.md and the figures of the pages from benchmarks/results.json
	@$(BIN)/python -m benchmarks.report

bench-quick: $(VENV)/.bench ## run the benchmarks in a short form
	@$(BIN)/python -m benchmarks --quick

instructions: $(VENV)/.test ## compare instructions per event with the recorded ones; independent of the clock
	@$(BIN)/python -m benchmarks.instructions

interop: $(VENV)/.test ## test against third-party servers and libraries
	@$(PYTEST) -q -m servers $(TEST)

# Ray is large, so it has an environment of its own.
ray: ## test batches and data sets on a Ray cluster of three nodes, in its own environment
	@test -x build/ray/bin/manystream || { $(PYTHON) -m venv build/ray && \
		build/ray/bin/python -m pip -qq --disable-pip-version-check install --constraint constraints.txt \
		setuptools pytest pytest-trio pytest-timeout hypothesis trustme --requirement tests/ray/requirements.txt && \
		build/ray/bin/python -m pip -qq --disable-pip-version-check install --constraint constraints.txt \
		--no-build-isolation --editable '.[cost]'; }
	@build/ray/bin/python -m pytest -q -s -m cluster tests/ray $(TEST)

# The servers and codecs that the suite needs are in an environment of its own.
clients: ## run the clients' published tests over our transports, in an environment of its own
	@test -x build/clients/bin/manystream || { $(PYTHON) -m venv build/clients && \
		build/clients/bin/python -m pip -qq --disable-pip-version-check install --constraint constraints.txt \
		pip setuptools pytest cryptography click --requirement tests/client_suites/requirements.txt && \
		build/clients/bin/python -m pip -qq --disable-pip-version-check install --constraint constraints.txt \
		--no-build-isolation --editable .; }
	@build/clients/bin/python -m tests.client_suites

conformance: $(VENV)/.test ## decode recorded answers: make conformance CORPUS=folder
	@$(BIN)/python -m tests.conformance "$(CORPUS)"
	@$(BIN)/python -m tests.conformance.gateway "$(CORPUS)"
	@MANYSTREAM_CORPUS="$(CORPUS)" $(PYTEST) -q tests/conformance/test_request_bodies.py

soak: $(VENV)/.test ## everything at once, with faults, kills and leaks looked for: make soak MINUTES=60
	@MANYSTREAM_SOAK_MINUTES="$(MINUTES)" $(PYTEST) -q -m soak -o timeout=0 $(if $(TEST),$(TEST),tests/soak/test_everything.py)

chaos: $(VENV)/.test ## gateway, durable answers, batches and cache against a hostile provider: make chaos MINUTES=60
	@MANYSTREAM_SOAK_MINUTES="$(MINUTES)" $(PYTEST) -q -m soak -o timeout=0 tests/soak/test_chaos.py

kills: $(VENV)/.test ## kill a batch at 200 random moments, and count at the server
	@$(PYTEST) -q -m soak -o timeout=0 tests/manystream/batch/test_batch_kills.py

defects: $(VENV)/.test ## raise at every Python call of iterations and timers; TEST="-k chat" for one dialect
	@MANYSTREAM_DEFECT_STEP=1 $(PYTEST) -q -o timeout=0 tests/faults/test_defects.py $(TEST)

fuzz: $(VENV)/.test ## fuzz every parser, guided by coverage, in its own environment: make fuzz MINUTES=30
	@$(BIN)/python -m tests.fuzz --minutes "$(MINUTES)" $(TEST)

# --strict: a version that the advisory service does not know, or a service that cannot be reached, is a failure too.
audit: ## look for advisories about the pins of constraints.txt, with pip-audit; asks PyPI
	@test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && \
		build/audit/bin/python -m pip -qq --disable-pip-version-check install pip-audit; }
	@build/audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt

docs: $(VENV)/.docs ## build the site of the documentation, in site/; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir "$(SITE)"

wheel: $(VENV)/.test ## build sdist and wheel, in dist/
	@$(BIN)/python -m build --quiet --no-isolation --outdir "$(DIST)" .

clean: ## remove the files of the tools, except .venv
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	@find . -name __pycache__ -type d -prune -not -path './.venv/*' -exec rm -rf {} +

distclean: clean ## remove .venv as well
	@rm -rf $(VENV) manystream.egg-info

# pip applies constraints to what it installs, but not to isolated builds. So the build back end is installed first, in
# its pinned version, and isolation is off. pip itself is pinned too: `--group` needs pip 25.1.
$(VENV)/.created: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "manystream needs Python 3.11 or newer, and " \
		"this is " + sys.version.split()[0] + ": make PYTHON=python3.12 …")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --constraint constraints.txt pip setuptools
	@touch $@

EXTRAS := cli,cost,otel,httpx2,httpx,tables,plots,zstd

# The package with the extras in the first argument, and the dependency group that the second argument names.
define install
	@echo 'installing into $(VENV): .[$(1)] $(2)' >&2
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[$(1)]' $(2)
	@touch $@
endef

$(VENV)/.demo: $(VENV)/.created pyproject.toml
	$(call install,cli)

$(VENV)/.test: $(VENV)/.created pyproject.toml
	$(call install,$(EXTRAS),--group test)

$(VENV)/.lint: $(VENV)/.created pyproject.toml
	$(call install,$(EXTRAS),--group lint)

$(VENV)/.bench: $(VENV)/.created pyproject.toml
	$(call install,$(EXTRAS),--group bench)

$(VENV)/.docs: $(VENV)/.created pyproject.toml
	$(call install,$(EXTRAS),--group docs)
