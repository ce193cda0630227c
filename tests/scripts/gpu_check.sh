#!/bin/sh
# gpu_check.sh SCRIPT BUILD: on the emulation the script runs all parts and prints their rows in one table; a part that
# fails does not stop the others; where there is nothing to check it says so in one line, with a status of its own.
set -u
script=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "$*; it said:"
  cat "$folder/output"
  exit 1
}

# built NAME TEST BENCH: a build folder with these programs as its device tests and its benchmark.
built() {
  mkdir -p "$folder/$1/tests/cuda" "$folder/$1/bench" "$folder/$1/tests/cuda_emulation"
  ln -s "$2" "$folder/$1/tests/cuda/test_cuda"
  ln -s "$3" "$folder/$1/bench/bench_gpu"
  ln -s "$build/tests/cuda_emulation/libhalfgrad_cuda_emulated.so" "$folder/$1/tests/cuda_emulation/"
}

built good "$build/tests/cuda/test_cuda" "$build/bench/bench_gpu"
"$script" --emulated --built --build "$folder/good" >"$folder/output" 2>&1 || fail "status $?, expected 0"
table="$folder/good/gpu_check/table"
grep -q '^tests  *ok, [1-9][0-9]* test cases passed, 0 failed' "$table" || fail "the table does not count the tests"
for row in 'product 64 x' 'convolution 3x3 .* weight grad' relu 'mlp step' 'cnn step' 'resnet step .* captured'; do
  grep -q "^$row .*[0-9.]* *[0-9]*% *[0-9.]* *[0-9]*% *[0-9.]*$" "$table" || fail "the table has no row '$row'"
done

printf '%s\n' '#!/bin/sh' 'printf "title,unit\nmlp step,ms\n" >"$3"' >"$folder/bench_gpu"
chmod +x "$folder/bench_gpu"
built bad "$(command -v false)" "$folder/bench_gpu"
"$script" --emulated --built --build "$folder/bad" >"$folder/output" 2>&1
[ $? = 1 ] || fail "the tests fail: expected status 1"
grep -q '^tests  *failed with status 1' "$folder/bad/gpu_check/table" || fail "the table does not say that the tests failed"
grep -q '^mlp step' "$folder/bad/gpu_check/table" || fail "the benchmarks did not run after the tests had failed"

CUDA_HOME=/nonexistent "$script" --emulated --build "$folder/none" >"$folder/output" 2>&1
[ $? = 77 ] || fail "no toolkit: expected status 77"
[ "$(wc -l <"$folder/output")" = 1 ] && grep -q 'no CUDA toolkit in /nonexistent' "$folder/output" ||
  fail "no toolkit: expected one line that says so"
"$script" --no-such-option >"$folder/output" 2>&1
[ $? = 1 ] || fail "an unknown option: expected status 1"
