# The commands of this repository, few and the same as in CI. Each makes the environment it needs; a fresh machine
# needs Python 3.11+ and, for Spark, a Java, which .ci/java installs where it can. `make test ARGS="tests/storage -x"`
# passes arguments on.

PY      := .venv/bin/python
ARGS    ?=
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)
FOLDERS := storage transport broker clients gateway spark adapters

# Images of Python set this for what they install; here each of a thousand processes would compile all of penstock.
export PYTHONDONTWRITEBYTECODE :=
export SEEDS FROM STEPS WITHOUT

.DEFAULT_GOAL := help
.PHONY: help test smoke demo docs dist lock bench bench-full soak sim lint fmt type dev java chromium clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

# A test may take five minutes, since the machine may be busy. Tests wait for much of their time, so half as many processes
# again as there are processors keep those busy.
# A part of the tests needs neither the lab nor, perhaps, Java, and is over before more processes have started.
test: $(if $(ARGS),,java chromium) lint type ## lint, types, a minute of the lab and every test: what CI runs
	$(if $(ARGS),,$(PY) -m perf --smoke)
	$(PY) -m pytest -q --timeout 300 $(if $(ARGS),$(ARGS),-n $(WORKERS))

smoke: dev ## does the lab work, and have its own ratios held; a minute
	$(PY) -m perf --smoke $(ARGS)

demo: java ## the main job: 336,776 real flights through a broker and back, checked
	@.ci/environment .venv-demo demo,spark
	.venv-demo/bin/penstock demo $(ARGS)

docs: dev ## the documentation site, in build/site/index.html
	$(PY) .ci/site

dist: ## wheel, sdist and bill of materials in dist/, checked and tried in an environment of their own
	@.ci/environment .venv-release release
	@.ci/dist

lock: ## deploy/requirements.lock, from the newest versions that pyproject.toml allows
	@.ci/environment .venv-release release
	.venv-release/bin/uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11 --no-annotate \
		--extra codecs --extra gateway \
		--custom-compile-command "make lock" --output-file deploy/requirements.lock pyproject.toml

# Distributions build their interpreter with PGO and LTO, which makes it up to a fifth faster than one without.
bench: ## every figure of perf/ beside this machine's own limits and its peers; minutes
	@PYTHON="$${PYTHON:-/usr/bin/python3 python3}" .ci/environment .venv-bench bench
	.venv-bench/bin/python -m perf $(ARGS)

bench-full: ## also what takes long; about an hour
	@$(MAKE) --no-print-directory bench ARGS="--full $(ARGS)"

soak: $(if $(ARGS),,java chromium) dev ## the same tests with many times the cases, and those marked `soak`
	$(PY) -m pytest -q --soak --timeout 3600 -o faulthandler_timeout=4000 $(ARGS)

sim: dev ## random lives of a simulated cluster: SEEDS=10000; LIFE=groups or transactions; FROM=, STEPS= and WITHOUT= run one again
	PYTHONPATH=tests $(PY) -m support.sim

lint: dev ## ruff, check and format
	$(PY) -m ruff check --quiet .
	$(PY) -m ruff format --check --quiet .

fmt: dev ## write the asyncio twins, format and sort imports in place
	$(PY) .ci/twins.py
	$(PY) -m ruff check --quiet --fix .
	$(PY) -m ruff format --quiet .

# Pyright sees the tree as the wheel lays it out: a copy with every folder under one import name.
type: dev ## pyright on the tree as it is shipped
	@rm -rf build/typed && mkdir -p build/typed
	@cp -r penstock kombu_penstock.py pyspark_penstock.py build/typed/ && cp -r $(FOLDERS) build/typed/penstock/
	$(PY) -m pyright --pythonpath $(PY)

dev:
	@.ci/environment .venv dev
	@.ci/sdists .venv redis kombu celery

java:
	@.ci/java

chromium:
	@.ci/chromium

clean: ## everything that make made, environments included
	rm -rf build dist penstock.egg-info .venv .venv-demo .venv-bench .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
