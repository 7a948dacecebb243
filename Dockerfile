# The CPU path, the tests, and on a host with an NVIDIA driver the GPU path: docs/guides/container.md.
FROM python:3.13-slim-bookworm
WORKDIR /warpbook
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends git make
COPY requirements requirements
COPY scripts/install.sh scripts/install.sh
RUN scripts/install.sh .venv requirements/cuda13.txt requirements/test.txt && touch .venv/installed .venv/installed-test
COPY . .
RUN .venv/bin/snakemake --cores 1 --dry-run report
CMD ["make", "report"]
