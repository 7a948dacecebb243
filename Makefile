# make report   from a fresh clone to reports/out/<study>.pdf
# make test     the test suite
# Both install what is missing first, and say nothing of it when nothing is.

.PHONY: report test test-cuda12 lock format benchmark
.SILENT:

report: .venv/installed
	.venv/bin/snakemake --cores 1 report

test: .venv/installed-test
	.venv/bin/ruff check --quiet
	.venv/bin/ruff format --quiet --check
	.venv/bin/python -m pytest

# The CUDA 12 install: its compiler builds every kernel for the architectures that CUDA 13 left behind.
test-cuda12: .venv-cuda12/installed-test
	.venv-cuda12/bin/python -m pytest tests/test_building.py

.venv/installed: requirements/cuda13.txt
	scripts/install.sh .venv $<
	touch $@

.venv/installed-test: .venv/installed requirements/test.txt
	scripts/install.sh .venv requirements/test.txt
	touch $@

.venv-cuda12/installed-test: requirements/cuda12.txt requirements/test.txt
	scripts/install.sh .venv-cuda12 $^
	touch $@

# Needs uv. The locks name no index, and hold for every platform and Python that pyproject.toml allows.
COMPILE = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock"
lock:
	for cuda in cuda13 cuda12; do $(COMPILE) --extra $$cuda pyproject.toml -o requirements/$$cuda.txt || exit; done
	$(COMPILE) --group pyproject.toml:test -c requirements/cuda13.txt -c requirements/cuda12.txt -o requirements/test.txt

format: .venv/installed-test
	.venv/bin/ruff check --quiet --fix
	.venv/bin/ruff format --quiet

# How long the main things take here, and how much memory and disk: the table of the README.
benchmark: .venv/installed
	.venv/bin/python scripts/benchmark.py
