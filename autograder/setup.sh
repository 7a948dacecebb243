#!/usr/bin/env bash
# Gradescope runs this once, as it builds the autograder's image: /autograder/source is what the zip holds.
set -euo pipefail
cd "${AUTOGRADER:-/autograder}/source"
scripts/install.sh .venv requirements/cuda13.txt
touch .venv/installed
