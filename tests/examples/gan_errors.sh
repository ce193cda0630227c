#!/bin/sh
# gan_errors.sh PROGRAM: whatever is wrong, the program says so in one line and ends with status 1.
set -u
program=$1
. "$(dirname "$0")/expect_error.sh"

out="$folder/samples"
expect_error "--no-such-option" --no-such-option
expect_error "--epochs" --epochs 0
expect_error "--lr" --lr fast
expect_error "--fp16 excludes --fp32" --fp16 --fp32
expect_error "--resume requires --checkpoint" --resume
expect_error "cuda" --device cuda --out "$out"
expect_error "apt install dataset-fashion-mnist" --data /nonexistent --out "$out"
touch "$folder/file"
expect_error "$folder/file" --out "$folder/file/samples"
if [ -d /usr/share/datasets/fashion-mnist ]; then
  expect_error "$folder/none" --checkpoint "$folder/none" --resume --out "$out"
fi

[ "$failures" = 0 ]
