#!/usr/bin/env bash
# Hunts a slowdown of about 2 % that is planted in moetune's own engine, builds included: a clone of HEAD with 32 more commits, of which one
# goes over the gradients three times for their norm and the others change comments only. Prints what `moetune bisect` says, and ends with 0
# when it names that commit and no other.
#
#   tests/bench/planted_slowdown.sh FOLDER [POSITION]      FOLDER: an empty one, for the clone, the builds and the database
#   MOETUNE=build/release/bin/moetune, BISECT_OPTIONS="--min-effect 1%"
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
moetune=$(realpath "${MOETUNE:-$checkout/build/release/bin/moetune}")
read -ra options <<<"${BISECT_OPTIONS:---min-effect 1%}"
work=$(realpath -m "${1:?a folder for the clone, the builds and the database}")
position=${2:-$((1 + RANDOM % 32))}
if ! [[ $position =~ ^[0-9]+$ ]] || ((position < 1 || position > 32)); then
  echo "position $position is not in 1..32" >&2
  exit 2
fi
mkdir -p "$work"
if [ -n "$(ls -A "$work")" ]; then
  echo "$work is not empty" >&2
  exit 2
fi

cp "$checkout/tests/bench/planted_slowdown.json" "$work/trial.json"
cp "$checkout/README.md" "$work/text"
git clone -q "$checkout" "$work/repo"
cd "$work/repo"
git config user.name "planted slowdown"
git config user.email planted@localhost
git config commit.gpgsign false
git tag start
files=(engine/model/attention.cpp kernels/cpu/row_gemm.cpp tuner/README.md profiler/timeline.cpp sweeps/runner.cpp engine/optim/optimizer.cpp README.md)
for i in $(seq 1 32); do
  if [ "$i" = "$position" ]; then
    sed -i 's/\[&\] { rank_.backend.squared_norm(args); }/[\&] { for (int i = 0; i < 3; ++i) rank_.backend.squared_norm(args); }/' engine/optim/optimizer.cpp
    git commit -qam "engine: change $i" # an empty commit is refused: the plant must have changed something
    git tag planted
  else
    file=${files[$((i % ${#files[@]}))]}
    case $file in *.md) echo "<!-- note $i -->" ;; *) echo "// note $i" ;; esac >>"$file"
    git commit -qam "${file%%/*}: change $i"
  fi
done
echo "planted at $(git rev-parse --short=12 planted), change $position of 32"

cd "$work"
status=0
"$moetune" bisect --repo repo --good start --bad HEAD --spec trial.json --db hunt.db --format json "${options[@]}" \
  --build 'cmake -S . -B "$MOETUNE_BISECT_BUILD_DIR" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMOETUNE_NVCC= && cmake --build "$MOETUNE_BISECT_BUILD_DIR" --target moetune moetune-rank' \
  --run '"$MOETUNE_BISECT_BUILD_DIR/bin/moetune" trial "$MOETUNE_BISECT_SPEC" --db "$MOETUNE_BISECT_OUT/trial.db" --quiet --format json' \
  >hunt.json || status=$?
grep -E '"(verdict|runs|builds|seconds|note|reason|effect_metric|ratio|low|high|noise_ratio)"' hunt.json || true
named=$(sed -n '/"culprits"/,/^  \]/s/.*"commit": "\(.*\)".*/\1/p' hunt.json)
if [ $status = 0 ] && [ "$named" = "$(git -C repo rev-parse planted)" ]; then
  echo "found"
else
  echo "not found (exit $status); named: ${named:-none}"
  exit 1
fi
