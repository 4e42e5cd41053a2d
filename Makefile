# make lab      install into .venv, copy the pages into work/, open JupyterLab
# make test     install what tests need, run all tests
# make check    format, lint, types, fast tests
# make book     the static site, in _build/html
# make sync     write the kernels' text into the pages
# make listings write the kernels' machine code for machines without a compiler
# make band     write how far the forecast is off on the kernels it was calibrated on
# make goldens  compare what everything says with what it said; ARGS=--write keeps what it says now
# make record   measure on this machine's GPU and write records
# make manifest bind the shipped records by their hashes, after make record
# make readme   write the results in README.md from the records
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

.PHONY: lab test check format book sync listings band goldens record manifest lock readme search-baselines clean

lab:
	@$(INSTALL) lab
	@$(RUN) -m tools.lab $(ARGS)

test:
	@$(INSTALL) test
	@$(RUN) -m tools.chromium
	@# Three at a time, on two cores too: some tests wait for a browser or a time limit.
	$(RUN) -m pytest tests -n 3 --dist worksteal $(ARGS)

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

sync:
	@$(INSTALL) lab
	@$(RUN) -m labtools sync $(ARGS)

listings:
	@$(INSTALL) lab
	@$(RUN) -m tools.write_listings $(ARGS)

band:
	@$(INSTALL) lab
	@$(RUN) -m tools.write_band

goldens:
	@$(INSTALL) test
	$(RUN) -m tools.goldens $(ARGS)

record:
	@$(INSTALL) lab
	@$(VENV)/bin/labtools record $(ARGS)

manifest:
	@$(INSTALL) lab
	@$(RUN) -m tools.write_manifest

readme:
	@$(INSTALL) lab
	@$(RUN) -m tools.readme_table $(ARGS)

search-baselines:
	@$(INSTALL) search
	@$(RUN) -m research.search_baselines $(ARGS)

lock:
	@$(INSTALL) lab
	$(RUN) -m tools.lock $(ARGS)

clean:
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis
