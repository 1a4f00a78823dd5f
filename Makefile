# `make demo` and `make test` set up what they need, say so, and take seconds when run again.

PYTHON ?= python3
LOCK ?= on

VENV := .venv
BIN := $(VENV)/bin
STAMPS := .cache
PLOTS := $(STAMPS)/bench-plots
SITE := $(STAMPS)/docs
SOLVERS := $(STAMPS)/solvers
LINTERS := $(STAMPS)/linters

ACTIONLINT := v1.7.12

# The cargo profile of what `make build` puts in place: `quick`, or `release` to measure it.
PROFILE := quick

.PHONY: help build native demo examples test verify build-tests test-rust test-python test-node test-rolling test-upgrade test-clients test-examples \
    model proof proof-second tie simulate chaos chaos-serve soak-serve mutants bench bench-gate bench-report packages test-packages release-check licenses version home docs lint lint-workflows rooms clean redis

help:
	@echo 'make build   both packages, in place (PROFILE=release: as they are published)'
	@echo 'make demo    the lock at work on five real servers, in two minutes, with a timeline as a page (LOCK=off: without it)'
	@echo 'make test    all suites, side by side, and how long each took (test-rust, test-python, test-node: one of them)'
	@echo 'make verify  the long forms of what is short in make test; takes hours'
	@echo 'make test-upgrade BEFORE=directory  this checkout and the one in the directory as clients of the same nodes'
	@echo 'make examples  what the examples in examples/ run on (make test-examples: their tests)'
	@echo 'make model   every order of events, up to a bound (MODEL=deep: further; SCOPE=text)'
	@echo 'make proof   the proof of the protocol, by a solver, with its negative controls (make proof-second: another solver)'
	@echo 'make tie     whether what simulated clients do is a run of the proof (SEEDS=30, FIRST_SEED=1)'
	@echo 'make simulate  whole clients under simulated faults (SEEDS=800, FIRST_SEED=1; SEED=n shows one)'
	@echo 'make mutants   breaks the protocol, the driver and the scripts on purpose, and shows what catches it (CHECK=tie: only that check)'
	@echo 'make chaos   clients in three languages under faults for 5 minutes (SECONDS=300, SEED=random, DETACHING=0.3: the share of leases that are handed over, then with 30 resources)'
	@echo 'make chaos-serve  the same for a minute, with clients in Go and Java that lock through quorlock serve'
	@echo 'make soak-serve  quorlock serve for ten minutes under clients that use up its time, files and memory (SECONDS=600)'
	@echo 'make rooms   which room imports which, and import circles anywhere'
	@echo 'make lint    formatters, linters, type checkers (make lint-workflows: only those of the workflows)'
	@echo 'make bench   quorlock compared with raw sockets and other libraries; takes about fifteen minutes'
	@echo 'make bench-gate BEFORE=directory  whether this checkout is slower than the one in the directory, by ratios'
	@echo 'make bench TOPIC=scale  a topic: scale, waiting, elections, shared, semaphores or serve; takes two to fifteen minutes'
	@echo '             (SIZES=short: about a minute; SCENARIOS=held: only these; ROUNDS=2, CYCLES=50: smaller runs; none of these saves results)'
	@echo 'make bench-report  writes docs/performance.md again, from the results of all topics'
	@echo 'make packages  wheel, sdist and npm packages of this machine in build/packages (PROFILE=release: as they are published)'
	@echo 'make test-packages  builds the packages as they are published, installs them without Rust, and tries them'
	@echo 'make release-check  builds and tests the packages of this machine as a release does, publishes nothing, and prints a table; takes about forty minutes'
	@echo 'make licenses  whether the licences and sources of all dependencies are allowed (needs cargo-deny)'
	@echo 'make version VERSION=1.2.3  sets the version of all packages'
	@echo 'make home REPOSITORY=https://… SCOPE=@…  moves the project to another address and npm scope'
	@echo 'make docs    the documentation site, in build/site (LINKS=all: also checks links to other sites)'
	@echo 'make clean   removes what these made, except the Rust target directory'

build: native $(STAMPS)/venv $(STAMPS)/npm

# One cargo for both bindings and the command, so that it compiles what they share once and links them side by
# side. PyO3 links no library of Python, and asks no interpreter: the module is for all versions.
EXTENSION := PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1
ifeq ($(shell uname -s),Darwin)
EXTENSION += RUSTFLAGS='-C link-arg=-undefined -C link-arg=dynamic_lookup'
LIBRARY := dylib
else
LIBRARY := so
endif
BUILT = $(or $(CARGO_TARGET_DIR),target)/$(PROFILE)

# $(call put,FROM,TO) replaces a file in one step: a process that has the old one loaded keeps it.
put = cmp -s $(1) $(2) || { cp $(1) $(2).new && mv $(2).new $(2); }

native:
	$(EXTENSION) cargo build --locked --profile $(PROFILE) -p quorlock-python -p quorlock-node -p quorlock-cli
	@$(call put,$(BUILT)/lib_quorlock.$(LIBRARY),bindings-python/python/quorlock/_quorlock.abi3.so)
	@$(call put,$(BUILT)/libquorlock_node.$(LIBRARY),bindings-node/quorlock.node)

# Needs neither .venv nor node_modules, and makes what else it needs.
demo:
	@$(PYTHON) -c $(CHECK_PYTHON)
	@LOCK=$(LOCK) $(PYTHON) demo/run.py

# All suites; the targets below run one of them. Skips those that only compute if they have passed with the same sources.
test:
	@$(PYTHON) -c $(CHECK_PYTHON)
	@$(PYTHON) tests/suites.py test

# The long forms of what `make test` runs in short, one after the other. Takes hours.
verify:
	@$(PYTHON) -c $(CHECK_PYTHON)
	@$(PYTHON) tests/suites.py verify

# Tokio's unstable interface makes a simulation repeatable: tasks that are woken together go on in the
# same order.
CARGO_TEST := RUSTFLAGS='--cfg tokio_unstable' cargo test --locked

# Always the same packages, also in tests/cargo.py: with others, cargo would compile dependencies once more.
RUST_PACKAGES := -p quorlock-protocol -p quorlock -p quorlock-cli

# All that the suites need, so that none of them compiles while the others measure time.
build-tests: build redis
	$(CARGO_TEST) $(RUST_PACKAGES) --no-run

# Tests with servers mostly wait for them, so more of them run at the same time than there are CPUs.
test-rust: redis
	$(CARGO_TEST) $(RUST_PACKAGES) --lib -- --skip model:: --skip simulation::
	$(CARGO_TEST) $(RUST_PACKAGES) --test cost --test executors --test garbage --test hostile --test opentelemetry --test test_nodes
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-8} $(CARGO_TEST) $(RUST_PACKAGES) --test integration
	$(CARGO_TEST) $(RUST_PACKAGES) --doc

# With the cross-language tests, which drive Node.js from Python. One process runs all tests of a file.
PYTEST_PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

test-python: build redis
	$(BIN)/python -m pytest -q $(PYTEST_PARALLEL)

test-node: build redis
	npm test

test-rolling: build redis
	$(BIN)/python -m pytest -q tests/cross/test_rolling.py

# What they run on, apart from .venv and node_modules; their tests install it, too.
examples: $(STAMPS)/venv
	$(BIN)/python tests/examples/installing.py

# This build together with the one in the directory BEFORE.
test-upgrade: build redis
	@test -d '$(BEFORE)' || { echo 'BEFORE must be the directory of another checkout'; exit 1; }
	$(MAKE) --no-print-directory -C '$(BEFORE)' native
	BEFORE='$(BEFORE)' $(BIN)/python -m pytest -q tests/upgrade

# All of them: a client that cannot be installed is a failure here.
test-clients: build redis
	CLIENTS=all $(BIN)/python -m pytest -q tests/serve

test-examples: build redis
	$(BIN)/python -m pytest -q $(PYTEST_PARALLEL) tests/examples

model:
	$(CARGO_TEST) $(RUST_PACKAGES) --quiet --lib model:: -- --nocapture

# About two minutes of CPU time. The second solver may run out of time; it only counts such claims.
proof: $(STAMPS)/proof
	$(SOLVERS)/bin/python -m proof

proof-second: $(STAMPS)/proof
	$(SOLVERS)/bin/python -m proof --cvc5

# The check is plain Python, without a solver. `make test` has 30 seeds, `make verify` 2,000.
tie:
	$(PYTHON) -m proof.tie

simulate:
	$(CARGO_TEST) $(RUST_PACKAGES) --quiet --lib simulation:: -- --nocapture

mutants:
	$(PYTHON) tests/mutants/run.py

# The run itself builds the Rust client, also in `make test`.
chaos: build redis
	$(BIN)/python tests/chaos/run.py --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED)) $(if $(DETACHING),--detaching $(DETACHING))

# With clients that lock through the daemon.
chaos-serve: build redis
	$(BIN)/python tests/chaos/run.py --serve --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) --out build/chaos-serve

# While a victim holds a lease of two seconds. `make test` has a short form.
soak-serve: build redis
	$(BIN)/python tests/serve_load.py $(or $(SECONDS),600)

# Measures what is published, and leaves that in place until the next `make build`.
# The report says what the files results.json say, which only a full run of a topic writes.
bench: $(STAMPS)/venv $(STAMPS)/npm redis $(STAMPS)/plots
	$(MAKE) --no-print-directory native PROFILE=release
	$(BIN)/python -m bench $(or $(TOPIC),performance) $(SCENARIOS)
	$(PLOTS)/bin/python -m bench.report

# Compares this checkout with the one in the directory BEFORE.
bench-gate: $(STAMPS)/venv $(STAMPS)/npm redis
	@test -d '$(BEFORE)' || { echo 'BEFORE must be the directory of another checkout'; exit 1; }
	$(MAKE) --no-print-directory native PROFILE=release
	cargo build --release --locked --quiet -p quorlock-bench
	$(MAKE) --no-print-directory -C '$(BEFORE)' .cache/venv .cache/npm
	$(MAKE) --no-print-directory -C '$(BEFORE)' native PROFILE=release
	cd '$(BEFORE)' && cargo build --release --locked --quiet -p quorlock-bench
	$(BIN)/python -m bench.gate '$(BEFORE)'

bench-report: $(STAMPS)/plots
	$(PLOTS)/bin/python -m bench.report

packages: $(STAMPS)/venv
	$(BIN)/python release/build.py build/packages $(PROFILE)

# As they are published, and in all tools; `make test` uses the cargo profile `quick`, and fewer tools.
test-packages: build redis
	PACKAGES_PROFILE=release TOOLS=full $(BIN)/python -m pytest -q tests/packages

release-check: build $(STAMPS)/site redis
	$(BIN)/python release/check.py

licenses:
	cargo deny --locked check licenses bans sources

version:
	$(PYTHON) release/version.py $(VERSION)

home:
	$(PYTHON) release/home.py $(REPOSITORY) $(SCOPE)

docs: $(STAMPS)/site
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict
	$(SITE)/bin/python site/links.py $(LINKS)

rooms:
	@PYTHONPATH=tests $(PYTHON) -m structure.rooms

lint: build lint-workflows
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked -p quorlock --no-default-features -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked -p quorlock-protocol -p quorlock --no-deps
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest quorlock._quorlock
	npm run types

# Without shellcheck and pyflakes, which actionlint would run only where they happen to be installed. Where Go is
# missing, only zizmor runs.
lint-workflows: $(STAMPS)/workflows
	@if [ -x $(LINTERS)/bin/actionlint ]; then $(LINTERS)/bin/actionlint -shellcheck= -pyflakes=; \
	  else echo 'actionlint is not installed, because it needs Go: only zizmor checks the workflows'; fi
	$(LINTERS)/bin/zizmor --offline --strict-collection --quiet .github

clean:
	rm -rf $(VENV) $(STAMPS) build/site build/packages build/demo*.html node_modules examples/node_modules examples/nestjs/dist site/node_modules \
	    LICENSE-THIRD-PARTY bindings-node/*.node bindings-python/python/quorlock/*.so

redis:
	@command -v "$${REDIS_SERVER:-redis-server}" > /dev/null || command -v valkey-server > /dev/null \
	  || tests/install-redis.sh

CHECK_PYTHON := 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'

$(STAMPS)/venv: requirements-dev.txt pyproject.toml release/editable.py
	@echo 'Python: making $(VENV)'
	$(PYTHON) -c $(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python release/editable.py
	@mkdir -p $(STAMPS) && touch $@

# What draws is apart from what is measured.
$(STAMPS)/plots: bench/requirements.txt
	@echo 'Python: making $(PLOTS)'
	$(PYTHON) -m venv --clear $(PLOTS)
	$(PLOTS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r bench/requirements.txt
	@touch $@

$(STAMPS)/proof: proof/requirements.txt
	@echo 'Python: making $(SOLVERS)'
	$(PYTHON) -m venv --clear $(SOLVERS)
	$(SOLVERS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r proof/requirements.txt
	@touch $@

$(STAMPS)/workflows: .github/requirements.txt
	@echo 'Python, and Go if it is installed: making $(LINTERS)'
	$(PYTHON) -m venv --clear $(LINTERS)
	$(LINTERS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r .github/requirements.txt
	-@! command -v go > /dev/null || GOBIN='$(abspath $(LINTERS))/bin' go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)
	@touch $@

$(STAMPS)/site: site/requirements.txt site/package-lock.json
	@echo 'Python, Node.js: making $(SITE) and site/node_modules'
	$(PYTHON) -m venv --clear $(SITE)
	$(SITE)/bin/pip install --quiet --disable-pip-version-check --no-deps -r site/requirements.txt
	cd site && npm ci --silent --no-audit --no-fund
	@touch $@

$(STAMPS)/npm: package.json package-lock.json bindings-node/package.json
	@echo 'Node.js: installing tools'
	npm ci
	@mkdir -p $(STAMPS) && touch $@
