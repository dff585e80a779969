# Set-up, build, test and demonstration in one place. CMake presets do the building; `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# What the distribution has too old comes from .deps/ (see scripts/install-deps.sh); the folders may be absent.
export PATH := $(CURDIR)/.deps/cmake/cmake/data/bin:$(CURDIR)/.deps/node/bin:$(PATH)
# As many as there are cores, and as the memory holds: one compiler takes up to 1.4 GB.
JOBS ?= $(shell awk -v cores=$$(nproc) '/^MemAvailable/ { fit = int($$2 / 1400000) } \
  END { print fit < 1 ? 1 : fit < cores ? fit : cores }' /proc/meminfo)
BIN := build/release/bin
HEADERS_ALONE := all_verify_interface_header_sets

.PHONY: help deps test-deps lint-deps cuda-libs demo build test install package gpu-check asan tsan simt-asan fuzz bench format format-check tidy clean

help:  ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

deps:
	@scripts/install-deps.sh

test-deps: deps
	@scripts/install-deps.sh test

lint-deps: deps
	@scripts/install-deps.sh lint

# CMake looks for libraries when it configures, so what was fetched is found by configuring anew.
cuda-libs: deps  ## Where nvcc is found: fetch the CUDA libraries that the system lacks (1 GB, once)
	@scripts/cuda-libs.sh --check >/dev/null 2>&1 || \
	  { scripts/cuda-libs.sh && rm -f build/*/build.ninja build/*/CMakeCache.txt; }

# CMake is run again by ninja itself when one of its files has changed.
build/%/build.ninja: CMakePresets.json | deps
	cmake --preset $*
	@touch $@

demo: build/release/build.ninja  ## Install what is missing, build, run the quick-start sweep, write its report
	cmake --build --preset release --parallel $(JOBS) --target moetune moetune-rank
	@mkdir -p out
	@echo "Quick-start sweep into out/quickstart.db (trials that are already there are not run again)"
	$(BIN)/moetune sweep sweeps/configs/quickstart.json --db out/quickstart.db
	$(BIN)/moetune report out/quickstart.db --out out/quickstart.html
	@echo "The report is here: $(CURDIR)/out/quickstart.html"

build: build/release/build.ninja  ## Build everything (preset release) into build/release
	cmake --build --preset release --parallel $(JOBS)

# The tests of the CUDA backend want NVIDIA's libraries; without them (no network) its stubs are tested.
.PHONY: try-cuda-libs
try-cuda-libs: test-deps
	@$(MAKE) --no-print-directory cuda-libs || echo "the CUDA libraries could not be fetched: testing without them"

# Three suites at a time on two cores: some mostly wait.
test: try-cuda-libs build/release/build.ninja  ## Install what is missing, build, run all tests
	cmake --build --preset release --parallel $(JOBS) --target all $(HEADERS_ALONE)
	ctest --preset release --parallel 3

PREFIX ?= /usr/local

install: build/release/build.ninja  ## Build the programs and install them with all they need into PREFIX=/usr/local
	cmake --build --preset release --parallel $(JOBS) --target moetune moetune-rank
	cmake --install build/release --prefix $(PREFIX)

# Without the first CPack writes a package that depends on nothing; it looks at programs with the second.
.PHONY: package-tools
package-tools:
	@{ command -v dpkg-shlibdeps && command -v file; } >/dev/null || \
	  { echo "make package needs dpkg-shlibdeps and file: apt-get install dpkg-dev file"; exit 1; }

package: package-tools build/package/build.ninja  ## A Debian package in build/package, for any x86-64 machine with AVX2 (no CUDA)
	cmake --build --preset package --parallel $(JOBS) --target moetune moetune-rank
	cd build/package && cpack
	@ls $(CURDIR)/build/package/*.deb

gpu-check:  ## On a machine with a GPU: its tests and benchmarks in one go
	@scripts/gpu-check.sh

asan: build/asan/build.ninja  ## Build and run the tests under the address and undefined-behaviour sanitizers
	cmake --build --preset asan --parallel $(JOBS)
	scripts/with-sanitizer-options.sh ctest --preset asan --label-exclude 'slow|web'

tsan: build/tsan/build.ninja  ## Build and run the tests under the thread sanitizer
	cmake --build --preset tsan --parallel $(JOBS)
	scripts/with-sanitizer-options.sh ctest --preset tsan --label-exclude 'slow|web'

simt-asan:  ## Where nvcc is found: the own CUDA kernels' tests, without a GPU, under the address sanitizer
	@if command -v nvcc >/dev/null; then $(MAKE) --no-print-directory build/asan/build.ninja && \
	  cmake --build --preset asan --parallel $(JOBS) --target simt_test && \
	  scripts/with-sanitizer-options.sh ctest --preset asan --tests-regex '^simt$$'; \
	else echo "no nvcc: the CUDA kernels are not built here"; fi

.PHONY: fuzz-deps
fuzz-deps: deps
	@scripts/install-deps.sh fuzz

fuzz: SECONDS := 60
fuzz: fuzz-deps build/fuzz/build.ninja  ## Fuzz each parser of tests/fuzz for SECONDS=60, JOBS at a time
	cmake --build --preset fuzz --parallel $(JOBS)
	@scripts/with-sanitizer-options.sh scripts/fuzz.sh build/fuzz $(SECONDS) $(JOBS)

bench: build/release/build.ninja  ## Build and run the benchmarks of tests/bench
	cmake --build --preset release --parallel $(JOBS) --target benchmarks
	@for program in $(BIN)/*_bench; do case $$program in */quickstart_bench) continue;; esac; echo "== $$program"; $$program; done

format: lint-deps  ## Format all C++ files in place
	@scripts/format.sh

format-check: lint-deps  ## Fail when a C++ file is not formatted
	@scripts/format.sh --check

tidy: lint-deps build/tidy/build.ninja  ## clang-tidy's short list (.clang-tidy) over all sources
	@cmake --build --preset tidy --target moetune_build_version
	@scripts/tidy.sh build/tidy

clean:  ## Remove everything that was built (out/ and .deps/ stay)
	rm -rf build
