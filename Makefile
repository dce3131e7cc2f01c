# make setup      .venv and .jars, once (everything below runs it first)
# make servers    databases and a schema registry for the tests, into .servers (what needs them runs it first)
# make stores     emulators of Google's and Azure's object stores for the tests of these, into .servers
# make test       lint and the tests
# make test-more  second editions of tests: other servers of the same claim, further seeds, an S3 server's lives
# make demo       a shop changefeed through a real broker into Delta, watched live
# make bench      the yardstick, two hours; bench-quick: five minutes
# make simulate   a cluster in virtual time, SEEDS=1000 of them from FIRST=0
# make mutate     bugs planted one by one into a copy of the program: each must be found by a seed
# make soak       what make test has no time for: of each random test two minutes of seeds, or SEEDS=5000 from FIRST=20000
# make clean      remove what setup and the tests made
#
# A fresh machine needs Python 3.11 or newer, Java 17 and make, nothing else.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?=
PIP_OPTIONS := --retries 10 --timeout 60 --no-input --disable-pip-version-check --progress-bar off
RUN := .venv/bin/python
SOURCES := conf coordination sinks streaming tests
# The tests start a hundred processes: what is imported is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup servers stores test test-more lint demo bench bench-quick simulate mutate soak clean

help:
	@sed -n '/^# make/s/^# //p' Makefile

setup: .venv/.ready .jars/.ready

servers: setup .jars/broker/.archived .servers/.ready .servers/apicurio.ready

# The stamp is written last and removed first: what a broken-off run left behind is made anew.
.venv/.ready: pyproject.toml
	@python=
	for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3; do
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
	    python=$$candidate; break
	  fi
	done
	if [ -z "$$python" ]; then
	  echo "setup: no Python 3.11 or newer with venv was found; name one with make setup PYTHON=..." >&2; exit 1
	fi
	if ! [ -e $@ ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
	  echo "setup: making .venv with $$("$$python" --version)"
	  rm -rf .venv
	  "$$python" -m venv .venv
	fi
	rm -f $@
	echo "setup: installing Python packages into .venv (some 700 MB, a few minutes the first time)"
	.venv/bin/python -m pip install $(PIP_OPTIONS) --editable '.[dev]' | { grep -v 'already satisfied' || true; }
	touch $@

# Ivy's own cache lives in .jars too, and goes when all jars are here: no home folder is read or written.
.jars/.ready: ivy.xml .venv/.ready
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -1 || true)
	if [ "$${version:-0}" -lt 17 ]; then
	  echo "setup: Java 17 or newer is needed, in JAVA_HOME or on the PATH; found: $${version:-none}" >&2; exit 1
	fi
	ivy=$$($(RUN) -c 'import pathlib, pyspark; print(*pathlib.Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))')
	mkdir -p .jars
	for conf in spark broker; do
	  for attempt in 1 2 3; do
	    echo "setup: downloading jars into .jars/$$conf (30 to 60 MB, attempt $$attempt of 3)"
	    rm -rf ".jars/$$conf.part"
	    if "$$java" -Divy.default.ivy.user.dir="$$PWD/.jars/ivy" -jar "$$ivy" -ivy ivy.xml -confs "$$conf" \
	        -types jar bundle -retrieve ".jars/$$conf.part/[artifact]-[revision].[ext]" >".jars/$$conf.log" 2>&1
	    then
	      rm -rf ".jars/$$conf"
	      mv ".jars/$$conf.part" ".jars/$$conf"
	      break
	    fi
	    if [ "$$attempt" = 3 ]; then
	      sed -n '/problems summary/,$$p' ".jars/$$conf.log" | grep -v '^[[:space:]]*$$' | head -20 >&2
	      echo "setup: the jars could not be downloaded; all of Ivy's output is in .jars/$$conf.log" >&2; exit 1
	    fi
	    rm -rf .jars/ivy
	    sleep 5
	  done
	done
	rm -rf .jars/ivy
	echo "setup: making a class archive, so that Spark starts in half the time (half a minute, 200 MB)"
	if ! $(RUN) -m streaming.spark.class_archive >.jars/archive.log 2>&1; then
	  echo "setup: no class archive could be made (see .jars/archive.log): Spark starts slower, all else works"
	fi
	touch $@
	echo "setup: done"

# For the tests' broker, which starts a dozen times.
.jars/broker/.archived: .jars/.ready
	@if ! $(RUN) -m tests.services.broker_archive >.jars/broker-archive.log 2>&1; then
	  echo "servers: no class archive for the broker (see .jars/broker-archive.log): it starts slower, all else works"
	fi
	touch $@

# For the tests' databases. One that is not to be had is skipped by the tests that want it.
.servers/.ready: tests/services/database_editions.py tests/services/database_packages.py .venv/.ready
	@echo "servers: unpacking MariaDB and MySQL for the tests into .servers (100 MB to load, 20 seconds)"
	if $(RUN) -m tests.services.database_packages; then touch $@; fi

# For the tests of avro, in the same way.
.servers/apicurio.ready: tests/services/registry_package.py | .venv/.ready
	@echo "servers: unpacking Apicurio's schema registry for the tests into .servers (140 MB to load, 20 seconds)"
	if $(RUN) -m tests.services.registry_package; then touch $@; fi

# Not a part of servers: Azurite takes 400 MB and Node.js.
stores: .venv/.ready
	$(RUN) -m tests.services.store_packages

lint: setup
	$(RUN) -m ruff check $(SOURCES)
	$(RUN) -m ruff format --check $(SOURCES)
	$(RUN) -m mypy

SHARED_OUT := -n 4 --dist loadscope --durations 15
# pytest rewrites the asserts of 550 modules: once, beside the linter, not in each of the workers.
test: servers
	@$(RUN) -m pytest --collect-only -qq >/dev/null 2>&1 & rewritten=$$!
	$(MAKE) --no-print-directory lint
	wait $$rewritten || true  # the workers tell what could not be collected
	$(RUN) -m pytest $(SHARED_OUT) || $(RUN) -m tests.failed_alone

test-more: servers
	$(RUN) -m pytest $(SHARED_OUT) -m "more and not soak" || $(RUN) -m tests.failed_alone -m "more and not soak"

demo: setup
	@exec $(RUN) -m tests.demo

bench: setup .servers/.ready
	$(RUN) -m tests.benchmarks
	$(RUN) -m tests.benchmarks.etcd_worker --output bench-results/etcd-worker.json
	$(RUN) -m tests.benchmarks.scheduler_scale --rounds 3
	$(RUN) -m tests.benchmarks.commits
	$(RUN) -m tests.benchmarks.databases

bench-quick: setup
	@$(RUN) -m tests.benchmarks --quick
	$(RUN) -m tests.benchmarks.commits --quick --output bench-results/commits-quick.json

SEEDS ?= 1000
FIRST ?= 0
simulate: setup
	@$(RUN) -m tests.simulation --seeds $(SEEDS) --first $(FIRST)
	$(RUN) -m tests.simulation.jobs --seeds $(SEEDS) --first $(FIRST)

mutate: setup
	@exec $(RUN) -m tests.simulation.mutate --seeds $(SEEDS)

soak: servers
	$(RUN) -m pytest -m soak

clean:
	rm -rf .venv .jars .servers build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache spark-warehouse metastore_db derby.log
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
