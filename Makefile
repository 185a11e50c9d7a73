# Siltstone. `make` alone lists the targets; CONTRIBUTING.md says what they are for.
#
#   CARGO_TARGET_DIR   where Cargo builds (default: target)
#   PYTHON             the Python that .venv is made with (default: python3)
#   JAVA_HOME          the JDK that Spark runs on (default: java of the PATH)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# What is cheap stands before what is dear, also under `make -j`.
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
CARGO ?= cargo
# The simulation's seeds, and the kills of the soak.
SEEDS ?= 100
KILLS ?= 10000
# The comparison's rows, and which of its cases (part of their names; none: all, and the table is
# written).
ROWS ?= 1000000
CASES ?=
# The one dimension that `make bench-growth` measures (none: all, and the page is written).
ONLY ?=
# Seconds that each fuzz target runs, and what it is built with: coverage by LLVM, checks of
# arithmetic. All of it works on stable Rust.
FUZZ_SECONDS ?= 60
FUZZ_FLAGS := -C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=4 \
	-C llvm-args=-sanitizer-coverage-inline-8bit-counters \
	-C llvm-args=-sanitizer-coverage-pc-table \
	-C llvm-args=-sanitizer-coverage-trace-compares \
	-C debug-assertions -C overflow-checks -C codegen-units=1 --cfg fuzzing
FUZZ_BUILT := $(or $(CARGO_TARGET_DIR),target)/fuzz
# Programs that `make audit` builds for itself.
TOOLS := $(abspath $(or $(CARGO_TARGET_DIR),target))/tools
# Where the benchmark keeps the published data that it fetches once.
PUBLISHED := $(abspath $(or $(CARGO_TARGET_DIR),target))/published
# Stores of `make stores` (none: all), and how much each check does: this many kills and takeovers,
# fifty times as many operations.
STORES ?=
EFFORT ?= 20
# Versions of Spark for `make spark-matrix`: none stands for all.
SPARKS ?=
# Processes that run the Python tests. Those of one file share one, and with it their Spark.
WORKERS ?= 2
# Extra arguments of the demo, such as DEMO="--rows-fraction 0.1 --keep".
DEMO ?=

# What the wheel is built from: any change rebuilds it, no change does not.
WHEEL_SOURCES := Cargo.toml Cargo.lock pyproject.toml \
	$(shell find crates -name '*.rs' -path '*/src/*' 2>/dev/null) \
	$(shell find crates -name Cargo.toml 2>/dev/null) \
	$(shell find python/siltstone python/pyspark_siltstone -type f -name '*.py*' -not -name '*.pyc' 2>/dev/null)

.PHONY: help
help: ## List the targets
	@echo 'Siltstone: an ordered key-value store that lives in an object store.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1: \2/p' Makefile

# --- What must be on the machine -----------------------------------------------------------------

# $(call need,program,how to get it)
define need
command -v $(1) >/dev/null 2>&1 || { echo 'make: $(1) is missing. $(2)' >&2; exit 1; }
endef

.PHONY: tools
tools: # A missing tool is named with the way to get it
	@$(call need,git,Debian and Ubuntu: apt-get install git; macOS: xcode-select --install)
	@$(call need,cc,Debian and Ubuntu: apt-get install build-essential; macOS: xcode-select --install)
	@$(call need,$(CARGO),Rust 1.90 or newer with cargo: see https://rustup.rs)
	@$(call need,rustc,Rust 1.90 or newer: see https://rustup.rs)
	@$(call need,$(PYTHON),Python 3.11 or newer: see https://www.python.org/downloads)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1), and 3.11 or newer is needed." >&2; \
		echo 'Install one and name it: make PYTHON=python3.11 …' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'make: $(PYTHON) cannot make virtual environments.' >&2; \
		echo 'Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }

.PHONY: java
java: # Spark runs on a Java of version 17 or newer
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	found="$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1 || true)"; \
	if [ "$${found:-0}" -lt 17 ]; then \
		echo "make: Spark needs Java 17 or newer, and $$java is version $${found:-(missing)}." >&2; \
		echo 'Debian and Ubuntu: apt-get install openjdk-17-jre-headless;' >&2; \
		echo 'macOS: brew install openjdk@17; others: https://adoptium.net.' >&2; \
		echo 'JAVA_HOME or PATH must name it.' >&2; exit 1; \
	fi

# --- The environment and the wheel ---------------------------------------------------------------

$(VENV)/.made: | tools
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'maturin>=1.16,<2'
	@touch $@

# What the laws need and this project's own build does not: a formatter, and CMake for the
# FlatBuffers compiler, which is built from source.
$(VENV)/.law-tools: $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		'ruff>=0.17,<0.18' 'cmake>=3.20,<5'
	@touch $@

dist/.built: $(WHEEL_SOURCES) | $(VENV)/.made
	rm -rf dist && mkdir dist
	$(BIN)/maturin build --release --locked --compression-level 9 --out dist \
		--interpreter $(BIN)/python
	@$(BIN)/python tests/wheels/size.py dist/*.whl
	@touch $@

# The extras bring the test tools, Spark and the demo's data; the second line replaces a wheel of
# the same version, which pip would otherwise keep.
$(VENV)/.installed: dist/.built
	wheel=$$(echo dist/*.whl); $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		"$$wheel[dev,demo]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps \
		dist/*.whl
	@touch $@

.PHONY: wheel
wheel: tools $(VENV)/.installed ## Build the wheel into dist/ and install it into .venv
	@echo "dist: $$(basename dist/*.whl), installed into $(VENV)"

# Wheels for other Linux machines than this one: linked by zig, so that they ask for no newer glibc
# than that of 2014, and in a folder of their own, since they differ from what the tests build.
WHEEL_MACHINES := x86_64 aarch64
WHEEL_TARGET_DIR ?= $(or $(CARGO_TARGET_DIR),target)/wheels

$(VENV)/.wheel-tools: $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		'ziglang>=0.14,<1' 'pyelftools>=0.31,<1'
	@touch $@

.PHONY: wheels
wheels: tools $(VENV)/.wheel-tools ## Wheels for x86-64 and aarch64 Linux into dist/linux/, checked
	@for machine in $(WHEEL_MACHINES); do \
		[ -d "$$(rustc --print target-libdir --target $$machine-unknown-linux-gnu)" ] || { \
			echo "make: Rust's library for $$machine is missing." >&2; \
			echo "rustup target add $$machine-unknown-linux-gnu" >&2; exit 1; }; \
	done
	rm -rf dist/linux
	@# Kernels of aarch64 have pages of 4 or of 64 KiB: the allocator is built for the larger one.
	for machine in $(WHEEL_MACHINES); do \
		case $$machine in aarch64) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac; \
		CARGO_TARGET_DIR=$(WHEEL_TARGET_DIR) PATH="$(BIN):$$PATH" $(BIN)/maturin build \
			--release --locked --strip --zig --target $$machine-unknown-linux-gnu \
			--compatibility manylinux2014 --interpreter python3.11 --out dist/linux; \
	done
	$(BIN)/python tests/wheels/check.py dist/linux

# --- The two commands ----------------------------------------------------------------------------

.PHONY: demo
demo: tools java $(VENV)/.installed ## Real data through Spark into a database and back, all of it checked
	$(BIN)/python python/demo/flights.py $(DEMO)

.PHONY: test
test: tools java laws types ## Everything: the laws, Rust tests, Python tests, the demo on a tenth of its rows
	@# The environment comes first on the PATH: some Rust tests start a Python of their own.
	PATH="$(BIN):$$PATH" SILTSTONE_REQUIRE_MOTO=1 \
		$(CARGO) test --release --locked --workspace --exclude siltstone-python 2>&1 \
		| $(BIN)/python tests/slowest.py
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile \
		--durations=10 --durations-min=1 tests/python

# Tests that start no server, no Spark and no other process.
FAST_TESTS := $(addprefix tests/python/,test_api.py test_arrow.py test_keys.py test_mapping.py \
	test_model.py test_seek.py test_table.py test_transactions.py test_ttl.py)

# The profile `quick` compiles incrementally, with light optimisation. It installs the package by a
# link to the sources, so the wheel is installed again by the next target that needs it.
.PHONY: quick
quick: tools $(VENV)/.made ## Unit tests of the engine and fast Python tests, within a minute of an edit
	$(CARGO) test --profile quick --locked -p siltstone -p siltstone-store --lib
	@rm -f $(VENV)/.installed
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --profile quick --locked --quiet \
		--extras test
	$(BIN)/python -m pytest -q -m 'not slow' $(FAST_TESTS)

# --- Checks and long runs ------------------------------------------------------------------------

# $(call law,command,what mends it)
define law
$(1) || { echo 'make: a law is broken. $(2)' >&2; exit 1; }
endef

# The laws that a program holds without running any of our code (the others are tests), cheapest
# first: whoever forgot to format reads it within a minute. Clippy builds no code, but it shares
# build scripts and procedural macros with the tests, and so their profile.
.PHONY: laws
laws: format fbs-check one-build clippy

.PHONY: lint
lint: laws types ## What a program holds without running the tests: format, FlatBuffers, clippy, types

.PHONY: format
format: tools $(VENV)/.law-tools # Formatting, and ruff's rules
	@$(call need,cargo-fmt,rustup component add rustfmt)
	@$(call law,$(CARGO) fmt --all --check,`make fmt` formats Rust and Python.)
	@$(call law,$(BIN)/ruff format --check .,`make fmt` formats Rust and Python.)
	@$(call law,$(BIN)/ruff check .,Some are mended by `make fmt`; the others say what they want.)

.PHONY: fmt
fmt: tools $(VENV)/.law-tools ## Format Rust and Python, and mend what ruff can
	$(CARGO) fmt --all
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: fbs-check
fbs-check: tools $(VENV)/.law-tools # The checked-in FlatBuffers code is what the schemas give
	@$(call need,c++,Debian and Ubuntu: apt-get install build-essential; macOS: xcode-select --install)
	@$(call law,PATH="$(BIN):$$PATH" fbs/generate.sh --check,`make fbs` writes what the schemas give.)

.PHONY: one-build
one-build: tools # The wheel and the tests ask the same features of what both need
	@$(call law,$(PYTHON) tests/wheels/one_build.py $(CARGO),\
		Name the missing features in crates/python/Cargo.toml or tests/Cargo.toml.)

.PHONY: clippy
clippy: tools # Every lint is an error here
	@$(call need,cargo-clippy,rustup component add clippy)
	@$(call law,$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings,\
		Each finding above says what it wants.)

# The types of what we depend on come with the installed wheel's extras.
.PHONY: types
types: tools $(VENV)/.installed # The Python package's types
	@$(call law,$(BIN)/mypy,Each finding above names file and line.)

# What stands in an audit changes without us, so it is no part of `make test`. cargo-deny is built
# (some minutes, once), pip-audit installed; both need the network.
CARGO_DENY := $(TOOLS)/bin/cargo-deny

$(CARGO_DENY): | tools
	$(CARGO) install --quiet --locked --root $(TOOLS) cargo-deny@0.20.2

$(VENV)/.audit-tools: $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.10,<3'
	@touch $@

# All of it is asked before it ends, and what could not be looked up counts as a failure: silence of
# a database is no answer.
.PHONY: audit
audit: tools $(CARGO_DENY) $(VENV)/.audit-tools $(VENV)/.installed ## Licences, sources and known vulnerabilities of what we depend on (network)
	@status=0; \
	$(CARGO_DENY) --locked check licenses bans sources || status=1; \
	$(CARGO_DENY) --locked check advisories || status=1; \
	$(BIN)/python -m pip freeze --exclude siltstone > $(VENV)/audited.txt; \
	$(BIN)/pip-audit --strict --no-deps --disable-pip --progress-spinner off \
		--requirement $(VENV)/audited.txt || status=1; \
	exit $$status

.PHONY: sim
sim: tools ## The simulation over SEEDS=n seeds, from FIRST_SEED=m on
	SEEDS=$(SEEDS) $(CARGO) test --release --locked -p siltstone-tests --test sim -- --nocapture

# With a target for the compiler named, its flags do not reach build scripts.
.PHONY: fuzz
fuzz: tools ## Hostile bytes by libFuzzer, FUZZ_SECONDS=n for each target
	host="$$(rustc -vV | sed -n 's/^host: //p')"; \
	RUSTFLAGS="$(FUZZ_FLAGS)" $(CARGO) build --release --locked --target "$$host" \
		--target-dir $(FUZZ_BUILT) -p siltstone-fuzz --features libfuzzer --bins; \
	for source in fuzz/fuzz_targets/*.rs; do \
		target="$$(basename "$$source" .rs)"; mkdir -p $(FUZZ_BUILT)/found/"$$target"; \
		echo "fuzz: $$target"; \
		$(FUZZ_BUILT)/"$$host"/release/"$$target" -max_total_time=$(FUZZ_SECONDS) -timeout=10 \
			-rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 -verbosity=0 \
			-artifact_prefix=$(FUZZ_BUILT)/found/"$$target-" \
			$(FUZZ_BUILT)/found/"$$target" tests/corpus/"$$target"; \
	done

.PHONY: soak
soak: tools java $(VENV)/.installed ## The long runs: 2,000 seeds, 400 banks, every state and bit, KILLS=n kills, 10 million calls
	SEEDS=2000 FAMILIES=1000 MIRRORS=500 LOADS=2000 $(CARGO) test --release --locked \
		-p siltstone-tests --test sim -- --nocapture
	BANKS=400 $(CARGO) test --release --locked -p siltstone-tests --test bank -- --nocapture
	LINEAR_SEEDS=4000 LINEAR_KEYS=40000 $(CARGO) test --release --locked -p siltstone-tests \
		--test linear -- --nocapture
	HOSTILE=full $(CARGO) test --release --locked -p siltstone-tests --test hostile -- --nocapture
	EXPLORE=full $(CARGO) test --release --locked -p siltstone-explorer -- --nocapture
	SILTSTONE_KILLS=$(KILLS) $(BIN)/python -m pytest -s tests/python/test_kill_all.py
	SILTSTONE_KILLS=2000 $(BIN)/python -m pytest -s tests/python/test_kill_jobs.py
	SILTSTONE_KILLS=2000 $(BIN)/python -m pytest -s tests/python/test_two_phase.py
	SILTSTONE_KILLS=200 $(BIN)/python -m pytest tests/python/test_kill.py \
		tests/python/test_kill_compactor.py tests/python/test_kill_clones.py \
		tests/python/test_gc.py
	SILTSTONE_UNIT_KILLS=500 $(BIN)/python -m pytest tests/python/test_units.py
	SILTSTONE_SPARK_ROUNDS=200 $(BIN)/python -m pytest -s tests/python/test_spark_cluster.py
	SILTSTONE_SPARK_QUERIES=2000 $(BIN)/python -m pytest tests/python/test_spark_queries.py
	SILTSTONE_LEAK_OPERATIONS=10000000 $(BIN)/python -m pytest -s tests/python/test_leaks.py
	$(BIN)/python benches/python/space.py --live 96 --seconds 120 --followers 1

# Each in an environment of its own, which is removed again: half a gigabyte, and all packages from
# the index.
.PHONY: spark-matrix
spark-matrix: tools java dist/.built ## The tests of Spark on 3.5, 4.0, 4.1, the newest, and by Connect; SPARKS="3.5 connect" some
	$(PYTHON) tests/matrix/sparks.py dist/*.whl $(SPARKS)

.PHONY: bench
bench: tools java $(VENV)/.installed ## Each part alone; the comparison with the peers into benches/RESULTS.md; CASES=get only prints
	@$(if $(CASES),,$(call need,npm,It fetches the second data set; it comes with Node.js: https://nodejs.org))
	$(if $(CASES),,$(CARGO) bench --locked -p siltstone-benches)
	wheel=$$(echo dist/*.whl); $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		"$$wheel[bench]"
	$(BIN)/python -m pytest -q -p no:asyncio benches/python --rows $(ROWS) --cases '$(CASES)' \
		$(if $(CASES),,--results benches/RESULTS.md)
	$(if $(CASES),,$(BIN)/python benches/python/published.py --folder $(PUBLISHED))

# One after another: they share the machine with the server.
.PHONY: stores-bench
stores-bench: tools ## The engine over the tests' S3 server with the latency of a real store; 1 GB is scanned
	$(CARGO) test --release --locked -p siltstone-tests --test served -- --ignored \
		--nocapture --test-threads=1

# Each server is started on loopback and stopped again. `STORES="moto gcs"` runs some; the results
# of all of them are the page of docs/.
.PHONY: stores
stores: tools $(VENV)/.installed ## The conformance checks on every store, into docs/conformance.md; STORES="moto gcs" some
	status=0; $(BIN)/python tests/stores/run.py --effort $(EFFORT) \
		--results tests/stores/results.json $(STORES) || status=$$?; \
	$(BIN)/python tests/stores/page.py; exit $$status

.PHONY: bench-growth
bench-growth: tools java $(VENV)/.installed ## How each cost grows, into benches/growth.json and docs/what-costs-what.md; ONLY=name one
	wheel=$$(echo dist/*.whl); $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		"$$wheel[bench]"
	status=0; $(BIN)/python benches/python/growth/run.py $(if $(ONLY),--only '$(ONLY)', \
		--output benches/growth.json) || status=$$?; \
	$(if $(ONLY),,$(BIN)/python benches/python/growth/page.py;) exit $$status

.PHONY: docs
docs: tools $(VENV)/.installed ## Write the API reference, the pictures and the measured figures
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/figures.py

# `make test` has the package by the extra `test` of the wheel.
$(VENV)/.site-tools: $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.7,<10'
	@touch $@

.PHONY: site
site: tools $(VENV)/.installed $(VENV)/.site-tools ## Build the searchable documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'site: open it with `$(BIN)/python -m http.server --directory site`'

# The link check is part of `make test`; a browser is no condition for that, but is for this.
.PHONY: site-check
site-check: tools $(VENV)/.installed ## Check the site: links, anchors, and three pages in a headless Chromium
	SILTSTONE_REQUIRE_CHROMIUM=1 $(BIN)/python -m pytest tests/python/test_site.py

.PHONY: fbs
fbs: tools $(VENV)/.law-tools ## Regenerate the FlatBuffers code from fbs/
	PATH="$(BIN):$$PATH" fbs/generate.sh

.PHONY: clean
clean: ## Remove what was built: .venv, dist, docs/reference, site and Cargo's target folder
	rm -rf $(VENV) dist docs/reference site
	$(CARGO) clean
