# `make demo` and `make test` set up what they need, say so, and take seconds when run again.

PYTHON ?= python3
LOCK ?= on

VENV := .venv
BIN := $(VENV)/bin
STAMPS := .cache
PLOTS := $(STAMPS)/bench-plots
CORE := Cargo.toml Cargo.lock $(shell find core/src core/Cargo.toml cli/src cli/Cargo.toml -type f)

.PHONY: help build demo test test-rust test-python test-node model simulate chaos mutants bench \
    bench-report bench-waiting lint clean redis

help:
	@echo 'make build   both packages in release mode, in place'
	@echo 'make demo    the lock at work on five real servers (LOCK=off: without it)'
	@echo 'make test    all suites: Rust, Python, Node.js, cross-language'
	@echo 'make model   every order of events, up to a bound (MODEL=deep: further; SCOPE=text)'
	@echo 'make simulate  whole clients under simulated faults (SEEDS=2000, FIRST_SEED=1; SEED=n shows one)'
	@echo 'make mutants   breaks the protocol on purpose, and shows what catches it'
	@echo 'make chaos   clients in three languages under faults for 5 minutes (SECONDS=300, SEED=random)'
	@echo 'make lint    formatters, linters, type checkers'
	@echo 'make bench   quorlock beside raw sockets and other libraries; takes ten to fifteen minutes (ROUNDS=8, CYCLES=200)'
	@echo 'make bench-report  writes docs/performance.md again, from bench/results.json'
	@echo 'make bench-waiting  waiting under contention, beside other libraries; takes ten minutes'
	@echo 'make clean   removes what these made, except the Rust target directory'

build: $(STAMPS)/python $(STAMPS)/node

demo: build redis
	LOCK=$(LOCK) $(BIN)/python demo/run.py

test: test-rust model simulate test-python test-node

# Tokio's unstable interface makes a simulation repeatable: tasks that are woken together go on in the
# same order.
CARGO_TEST := RUSTFLAGS='--cfg tokio_unstable' cargo test --locked -p quorlock

# The pure protocol builds, and is tested, without any dependency.
test-rust: redis
	$(CARGO_TEST) --no-default-features --lib -- --skip model::
	$(CARGO_TEST) -- --skip model:: --skip simulation::

# With the cross-language tests, which drive Node.js from Python.
test-python: build redis
	$(BIN)/python -m pytest -q

test-node: build redis
	npm test

model:
	$(CARGO_TEST) --quiet --no-default-features --lib model:: -- --nocapture

simulate:
	$(CARGO_TEST) --quiet --lib simulation:: -- --nocapture

mutants:
	$(PYTHON) tests/mutants/run.py
# The run itself builds the Rust client, also in `make test`.
chaos: build redis
	$(BIN)/python tests/chaos/run.py --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED))

# The report says what bench/results.json says; without `make bench` before, what is committed there.
bench: build redis $(STAMPS)/plots
	$(BIN)/python bench/run.py
	$(PLOTS)/bin/python bench/report.py

bench-report: $(STAMPS)/plots
	$(PLOTS)/bin/python bench/report.py

bench-waiting: build redis
	$(BIN)/python bench/waiting/main.py

lint: build
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked -p quorlock --no-default-features -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked -p quorlock --no-deps
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest quorlock._quorlock
	npm run types

clean:
	rm -rf $(VENV) $(STAMPS) node_modules bindings-node/*.node bindings-python/python/quorlock/*.so

redis:
	@command -v "$${REDIS_SERVER:-redis-server}" > /dev/null || command -v valkey-server > /dev/null \
	  || tests/install-redis.sh

$(STAMPS)/venv: requirements-dev.txt
	@echo 'Python: making $(VENV)'
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@mkdir -p $(STAMPS) && touch $@

# What draws is apart from what is measured.
$(STAMPS)/plots: bench/requirements.txt
	@echo 'Python: making $(PLOTS)'
	$(PYTHON) -m venv --clear $(PLOTS)
	$(PLOTS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r bench/requirements.txt
	@touch $@

$(STAMPS)/python: $(STAMPS)/venv $(CORE) pyproject.toml \
    $(shell find bindings-python -type f \( -name '*.rs' -o -name '*.py' -o -name '*.toml' \))
	@echo 'Python: building the package in release mode'
	$(BIN)/maturin develop --release --locked
	@touch $@

# `npm ci` builds the addon too: it is the package's install script.
$(STAMPS)/node: package.json package-lock.json $(CORE) \
    $(shell find bindings-node -type f \( -name '*.rs' -o -name '*.toml' \))
	@echo 'Node.js: installing tools and building the addon in release mode'
	npm ci
	@mkdir -p $(STAMPS) && touch $@
