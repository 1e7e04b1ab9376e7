# make setup | demo | test | test-integrations | lint. Every target does its own set-up; see README.md.
PYTHON ?= python3
VENV := .venv
VENV_INTEGRATIONS := .venv-integrations
TORCH := torch==2.13.0
# Many tests wait for browsers and processes: one process more than there are cores, each with whole files of tests.
JOBS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 8 ? cores + 1 : 8)))

.PHONY: setup demo test test-integrations lint clean

setup: $(VENV)/runtime.done

$(VENV)/bin/python:
	@./.ci/system-packages venv
	$(PYTHON) -m venv $(VENV)

$(VENV)/runtime.done: requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@touch $@

$(VENV)/development.done: requirements-dev.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@ $(VENV)/runtime.done

# torch first and by itself: its CPU build, where one is offered, is not the file whose hash the index names.
$(VENV_INTEGRATIONS)/integrations.done: requirements-integrations.txt
	@./.ci/system-packages venv
	$(PYTHON) -m venv $(VENV_INTEGRATIONS)
	$(VENV_INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(VENV_INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-integrations.txt
	@touch $@

demo: setup
	$(VENV)/bin/python -m trainvitals demo

test: $(VENV)/development.done lint
	@./.ci/system-packages test
	$(VENV)/bin/python -m pytest -m "not integration" -n $(JOBS) --dist loadfile

test-integrations: $(VENV_INTEGRATIONS)/integrations.done
	$(VENV_INTEGRATIONS)/bin/python -m pytest -m integration

lint: $(VENV)/development.done
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) $(VENV_INTEGRATIONS) .mypy_cache .ruff_cache .pytest_cache .hypothesis
