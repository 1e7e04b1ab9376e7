# make setup | demo | test | test-integrations | lint. Every target does its own set-up; see README.md.
PYTHON ?= python3
VENV := .venv
VENV_INTEGRATIONS := .venv-integrations
TORCH := torch==2.13.0
# Tests that wait for browsers and processes most of the time: one core is enough for them, beside the others.
WAITING := tests/browser tests/chaos tests/demo

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
	@echo "Tests of $(WAITING) run beside the others; what they say comes at the end."
	@$(VENV)/bin/python -m pytest -m "not integration" $(WAITING) >.test-waiting.log 2>&1 & waiting=$$!; \
	$(VENV)/bin/python -m pytest -m "not integration" $(addprefix --ignore=,$(WAITING)); others_result=$$?; \
	wait $$waiting; waiting_result=$$?; cat .test-waiting.log; \
	exit $$((others_result > waiting_result ? others_result : waiting_result))

test-integrations: $(VENV_INTEGRATIONS)/integrations.done
	$(VENV_INTEGRATIONS)/bin/python -m pytest -m integration

lint: $(VENV)/development.done
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) $(VENV_INTEGRATIONS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .test-waiting.log
