# Everything runs in the project's own virtual environment, which is created on first use.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
DATA ?=
# Without bytecode, every run of the tests compiles all of them again.
unexport PYTHONDONTWRITEBYTECODE

# One worker per core. A file is run by one worker, so that its models are trained once.
PARALLEL = -n auto --maxprocesses 8 --dist loadfile

.PHONY: demo test quick check docs format reliability sbom bench data-folder peers clean

demo: $(VENV)/.demo  ## train, compare and ask a model of real data; at most three minutes on two cores
	$(BIN)/python demo/run.py demo-output

test: check  ## the linters, the type checker and all tests
	$(BIN)/python -m pytest -q $(PARALLEL)

quick: $(VENV)/.dev  ## the tests a developer runs all the time
	$(BIN)/python -m pytest -q $(PARALLEL) -x -m "not slow"

check: $(VENV)/.dev  ## linters and type checker
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/.dev  ## build the documentation site in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(VENV)/.dev  ## fix what ruff can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: data-folder $(VENV)/.dev $(VENV)-peers/.installed  ## every benchmark; DATA=folder with one folder per data set
	$(BIN)/python benchmarks/reading.py $(DATA)/commit-files/train.jsonl.gz
	$(BIN)/python benchmarks/label_tree.py $(DATA)/commit-files --peers-python $(VENV)-peers/bin/python
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/learnt_vectors.py $(DATA)/tibkat-sid --seed 1
	$(BIN)/python benchmarks/indexes.py $(DATA)/tibkat-sid
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/all_labels_step.py
	$(BIN)/python benchmarks/shortlist_step.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/modules.py $(DATA)/tibkat-sid --texts 20000
	$(BIN)/python benchmarks/accuracy.py $(DATA)/*

data-folder:
	@test -n "$(DATA)" || { echo "make bench needs data sets: make bench DATA=FOLDER, where FOLDER holds commit-files and tibkat-sid"; exit 2; }

peers: $(VENV)-peers/.installed  ## other tools to compare with, in their own virtual environment

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=24"

# Installing compiles the kernels in C.
NATIVE = hatch_build.py $(wildcard src/shortlist/kernels/c/*)

$(VENV)/.demo: pyproject.toml constraints.txt demo/requirements.txt $(NATIVE) | $(VENV)/bin/python
	$(PIP) -c constraints.txt -e ".[serve]"
	$(PIP) --no-deps --require-hashes -r demo/requirements.txt
	-$(PIP) omikuji==0.5.2  # a linear model to compare with, where there is a build of it
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt demo/requirements.txt $(NATIVE) | $(VENV)/bin/python
	$(PIP) -c constraints.txt -e ".[train,transformers,ann,parquet,ray,rdf,zstd,serve,test,check,bench,docs]"
	$(PIP) --no-deps --require-hashes -r demo/requirements.txt
	touch $@

# PECOS takes a CUDA build of torch by the gigabyte unless the CPU build is there first.
$(VENV)-peers/.installed: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(VENV)-peers/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers/requirements.txt
	touch $@

reliability: $(VENV)/.dev  ## the campaigns of faults, kills, hostile inputs, load and concurrency; some hours
	$(BIN)/python benchmarks/reliability/crash.py
	$(BIN)/python benchmarks/reliability/kill.py
	$(BIN)/python benchmarks/reliability/fuzz.py --inputs 1000000
	$(BIN)/python benchmarks/reliability/concurrency.py --seconds 60
	$(BIN)/python benchmarks/reliability/load.py --goals

sbom: $(VENV)/.dev  ## a software bill of materials of the virtual environment: sbom.json
	$(BIN)/python release/supply.py sbom > sbom.json

clean:  ## compiled kernels, caches, outputs (the virtual environments stay)
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output dist site
