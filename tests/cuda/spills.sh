#!/bin/sh
# spills.sh NVCC FLAG... FILE: succeeds when the compiler refuses FILE because registers are spilled.
output=$(mktemp)
trap 'rm -f "$output" "$output.o"' EXIT
if "$@" -c -o "$output.o" >"$output" 2>&1; then
  echo "compiled, although registers should spill"
  exit 1
fi
cat "$output"
grep -q 'Registers are spilled to local memory' "$output"
