#!/bin/sh
# gan.sh PROGRAM: a short run draws a picture after each epoch and ends with its numbers; one that is interrupted and
# resumed draws the same pictures, in both precisions.
set -eu
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
numbers='^gen_loss=[0-9.-]* critic_loss=[0-9.-]* gen_scale=[0-9]* critic_scale=[0-9]* skipped=[0-9]* seconds=[0-9.]*$'

fail() {
  echo "$*; the last run said:"
  cat "$folder/output"
  exit 1
}

# run OUT ARGUMENT...: draws into that folder, in epochs of 7 batches, enough for a turn of either network.
run() {
  out=$1
  shift
  "$program" --limit 112 --batch-size 16 --out "$folder/$out" "$@" >"$folder/output" 2>&1 || fail "$*: status $?"
  tail -n 1 "$folder/output" | grep -q "$numbers" || fail "$*: the last line is not '$numbers'"
}

for options in --fp16 --fp32 --wgan; do
  run whole $options --epochs 2
  run parts $options --epochs 1 --checkpoint "$folder/run"
  run parts $options --epochs 2 --checkpoint "$folder/run" --resume
  for epoch in 1 2; do
    picture="$folder/whole/epoch_$epoch.png"
    [ "$(head -c 4 "$picture" | tail -c 3)" = PNG ] || fail "$options: $picture is not a PNG file"
    cmp "$picture" "$folder/parts/epoch_$epoch.png" || fail "$options: a resumed run draws other pictures"
  done
  cmp -s "$folder/whole/epoch_1.png" "$folder/whole/epoch_2.png" && fail "$options: the second epoch changed nothing"
  rm -r "$folder/whole" "$folder/parts" "$folder/run"
done
