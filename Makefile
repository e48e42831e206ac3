# `make demo` and `make test` are all that a fresh machine needs. Each target first makes the virtual
# environment .venv, builds the compiled module in release mode and installs the tools that it uses;
# later runs reuse them. Another interpreter: make test PYTHON=/path/to/python3.12

# Tests start hundreds of processes: they would compile the package anew in each.
unexport PYTHONDONTWRITEBYTECODE

RUST_SOURCES := $(shell find rust -name '*.rs' -o -name 'Cargo.toml') Cargo.toml Cargo.lock

.PHONY: demo test check core-tests docs bench wheel wheels reproducible test-oldest nightly tools clean

demo: .venv/module-built         # train a private classifier on real data, print and plot the result
	.venv/bin/dpsvm-fast demo

# One process more than cores: some tests wait for others that they start. Each would spend half of the
# time until its first test on rewriting asserts: only failed tests run again with it.
pytest := .venv/bin/python -m pytest
test: core-tests tools           # core tests (Rust), then package tests (Python); `check` runs tests/architecture
	$(pytest) --numprocesses=$$(($$(getconf _NPROCESSORS_ONLN) + 1)) --maxprocesses=4 --dist=worksteal \
	    --assert=plain --ignore=tests/architecture || { $(pytest) --last-failed --last-failed-no-failures=none; exit 1; }

check: core-tests tools          # core tests, format, lint, types, stub, import directions, documentation
	tools/check.sh

core-tests: .venv/module-built   # the Rust core, with checks of overflow and debug assertions
	tools/test_core.sh

docs: .venv/module-built tools   # the documentation site, in target/docs/html
	tools/docs.sh

bench: .venv/module-built tools  # benchmarks; results go to benches/results as CSV
	.venv/bin/python benches/run.py

wheel: .venv/wheel-tools         # one stable-ABI wheel in dist/ for this machine, audited
	tools/wheel.sh
	.venv/bin/abi3audit --strict dist/*.whl

wheels: .venv/wheel-tools        # the same for Linux on x86-64 and aarch64, with glibc and musl
	tools/wheel.sh all
	.venv/bin/abi3audit --strict dist/*.whl

reproducible: .venv/wheel-tools  # the wheel of the last commit, built in two folders, has the same bytes
	tools/test_reproducible.sh

test-oldest: wheel               # the wheel against the oldest supported dependencies
	tools/test_oldest.sh

nightly: .venv/module-built tools # the slow, statistical, nightly and deployment tests
	.venv/bin/python -m pytest -m "slow or statistical or nightly or deployment"

tools: .venv/tools-installed     # what the other targets use, in .venv

clean:                           # everything that the other targets make
	rm -rf .venv target dist docs/reference docs/repository .mypy_cache .ruff_cache .pytest_cache .hypothesis python/dpsvm_fast/_core*.so

# A PYTHON of another version than the one in .venv remakes the environment.
ifneq ($(PYTHON),)
version := -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null
ifneq ($(shell $(PYTHON) $(version)),$(shell .venv/bin/python $(version)))
.PHONY: .venv/made
endif
endif

.venv/made: pyproject.toml tools/bootstrap.sh
	tools/bootstrap.sh "$(PYTHON)"

.venv/module-built: .venv/made $(RUST_SOURCES)
	tools/build_module.sh

# The module is needed first, and not again when it changes.
.venv/tools-installed: .venv/made tools/install_tools.sh | .venv/module-built
	tools/install_tools.sh

.venv/wheel-tools: .venv/made
	.venv/bin/python -m pip install --quiet --group wheel --group audit
	touch .venv/wheel-tools
