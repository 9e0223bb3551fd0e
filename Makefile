PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Compiled modules are kept, also where the environment says otherwise: the tests start many processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-all test-matrix fuzz lint docs figures paper bench clean

demo: $(STAMP)  ## trains on real data under eight schemes; tables and figures in runs/
	$(BIN)/gcjax run configs/quickstart.gin

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(STAMP)  ## the tests that take long, and more cases of what `make test` checks; PART=0/3 for a third
	$(BIN)/python -m pytest -n 2 --dist worksteal --slow -m slow $(if $(PART),--part $(PART))

test-all: test test-slow

fuzz: $(STAMP)  ## many random configs and damaged files; a case that fails goes into the tests
	GCJAX_FUZZ=20 $(BIN)/python -m pytest -n 2 --dist load --slow -m slow tests/config/test_config_fuzz.py tests/test_readers_fuzz.py

test-matrix: $(STAMP)  ## a quick subset on the oldest and newest JAX and Python, in 64 bits, on 1 device; all configs
	$(BIN)/python -m tests.matrix

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

figures: $(STAMP)  ## draws the figures of the docs anew; FIGURES="loss_vs_time timeline" for some of them
	$(BIN)/python -m experiments.figures $(FIGURES)

docs: $(STAMP)  ## all pages and the reference, as HTML in docs/_build/html; warnings are errors
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

paper: $(STAMP)  ## the manuscript: runs what is not done, writes paper/generated, typesets; QUICK=1 for small runs
	$(BIN)/python -m experiments.paper $(if $(QUICK),--quick)
	@if command -v latexmk >/dev/null && command -v pdflatex >/dev/null; then \
	    cd paper && latexmk -pdf -interaction=nonstopmode -halt-on-error -outdir=build main.tex && echo "paper/build/main.pdf"; \
	else \
	    echo "The numbers, tables and figures are in paper/generated. There is no LaTeX here, so no paper/build/main.pdf."; \
	    echo "On Debian: apt install texlive-latex-extra latexmk. Then: make paper"; \
	fi

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .matrix runs build paper/build dist docs/_build docs/reference *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gcjax needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@
