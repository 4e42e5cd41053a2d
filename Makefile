# make lab      install into .venv, copy the pages into work/ with their outputs, open JupyterLab
# make test     install what tests need, run the tests: of slow ones one in eight, as drawn
# make audit    the same with all of them
# make check    format, lint, types, fast tests
# make book     the static site, in _build/html
# make site-archive  the same packed for a static host, in _build/site.zip
# make pdf      the site printed on A4, in _build/book.pdf
# make epub     the same pages as an EPUB, in _build/book.epub
# make regen    write anew what follows from sources alone, and say what changed
# make goldens  compare what everything says with what it said
# make accept WHAT=json MATCH="derive *"   keep what is said now: json, screens, prepared, ...
# make record   measure on this machine's GPU, write records and bind them by their hashes
# make nvcc     install the compiler of kernels with host code
# make triton   install the compiler of Triton kernels, about 700 MB on disk
# make search-baselines  play other searches on the recorded grid; ARGS="--only loop" those alone
# make lock     resolve the lock files anew
#
# PYTHON=python3.12   the Python that .venv is made with
# TORCH=auto|cpu|cuda|none|cu126   which torch (kept until you name another)
# ARGS=...            passed on: make lab ARGS=--no-browser, make test ARGS="-k occupancy"
# SKIP_BROWSER=1      no browser tests, no Chromium

PYTHON ?= python3
VENV ?= .venv
TORCH ?=
ARGS ?=
RUN = $(VENV)/bin/python
# Tests start Python thousands of times: what it compiles is kept, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=
INSTALL = $(PYTHON) tools/install.py --venv $(VENV) --torch "$(TORCH)"

.PHONY: lab test audit check format book site-archive pdf epub regen sync listings band readme goldens accept record lock nvcc triton search-baselines clean

lab:
	@$(INSTALL) lab
	@$(RUN) -m tools.lab $(ARGS)

test:
	@$(INSTALL) test
	@$(RUN) -m tools.chromium
	@# Four at a time, on two cores too: some tests wait for a browser or a time limit.
	$(RUN) -m pytest tests --drawn -n 4 --dist worksteal $(ARGS)

audit:
	@LABTOOLS_EVERY_CASE=1 $(MAKE) test

check:
	@$(INSTALL) test
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m labtools sync --check
	@# The types are looked at while the tests run; both must be right.
	$(RUN) -m mypy & types=$$!; \
	$(RUN) -m pytest tests/cpu --fast -q -n 2 --dist worksteal $(ARGS); tests=$$?; \
	wait $$types && exit $$tests

format:
	@$(INSTALL) test
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

book:
	@$(INSTALL) lab
	@$(RUN) -m tools.book $(ARGS)

site-archive:
	@$(INSTALL) lab
	@$(RUN) -m tools.book --archive $(ARGS)

pdf:
	@$(INSTALL) test
	@$(RUN) -m tools.chromium
	@$(RUN) -m tools.pdf

epub:
	@$(INSTALL) test
	@$(RUN) -m tools.book --epub $(ARGS)

regen sync listings band readme:
	@$(INSTALL) lab
	@$(RUN) -m tools.regen

goldens:
	@$(INSTALL) test
	@$(RUN) -m tools.goldens $(ARGS)

accept:
	@$(INSTALL) test
	@$(RUN) -m tools.goldens --accept --only "$(WHAT)" --match "$(MATCH)"

record:
	@$(INSTALL) lab
	@$(VENV)/bin/labtools record $(ARGS)
	@$(RUN) -m tools.write_manifest

nvcc triton:
	@$(INSTALL) $@

search-baselines:
	@$(INSTALL) search
	@$(RUN) -m research.search_baselines $(ARGS)

lock:
	@$(INSTALL) lab
	$(RUN) -m tools.lock $(ARGS)

clean:
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis
