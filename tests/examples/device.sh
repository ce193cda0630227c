#!/bin/sh
# device.sh FASHION_MNIST GAN [MODULE]: --device auto says in its first line where it trains, and why not on a GPU; cuda
# without a GPU is an error. With a module of the CUDA backend that needs no GPU, both examples train on it, and arrive
# where the CPU does.
set -u
program=$1
gan=$2
module=${3:-}
. "$(dirname "$0")/expect_error.sh"   # from here on there is no GPU
small="--model mlp --epochs 1 --limit 64 --batch-size 16"

fail() {
  echo "$*; it said:"
  cat "$folder/out" "$folder/error"
  exit 1
}

# run COMMAND...: notes what it says; it must end well.
run() {
  "$@" >"$folder/out" 2>"$folder/error" || fail "$*: status $?"
}

expect_error "use the device cpu" --device cuda
[ "$failures" = 0 ] || exit 1
run "$program" $small
head -n 1 "$folder/out" | grep -q '^training on cpu: the CUDA backend could not be opened ' || fail "auto without a module"
run "$program" $small --device cpu
grep -q '^training on' "$folder/out" && fail "--device cpu has nothing to explain"
on_cpu=$(sed -n 's/.*valid_loss=\([0-9.]*\).*/\1/p' "$folder/out")

[ -n "$module" ] || exit 0
export HALFGRAD_CUDA_MODULE="$module"
run "$program" $small
[ "$(head -n 1 "$folder/out")" = "training on cuda:0" ] || fail "auto with a module"
# Four steps in f16: each number is rounded to 11 bits a few dozen times, which is far from one part in a hundred.
on_gpu=$(sed -n 's/.*valid_loss=\([0-9.]*\).*/\1/p' "$folder/out")
awk -v a="$on_cpu" -v b="$on_gpu" 'BEGIN { exit !(a > 0 && b > a * 0.99 && b < a * 1.01) }' ||
  fail "the loss is $on_gpu on the GPU and $on_cpu on the CPU"
run "$program" $small --device cuda --fp32
run "$gan" --epochs 1 --limit 16 --batch-size 8 --device cuda --out "$folder/samples"
[ -s "$folder/samples/epoch_1.png" ] || fail "gan on a GPU draws no picture"
