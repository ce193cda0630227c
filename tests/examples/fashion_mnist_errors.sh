#!/bin/sh
# fashion_mnist_errors.sh PROGRAM: whatever is wrong, the program says so in one line and ends with status 1; a crash
# would end it with another.
set -u
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# expect TEXT ARGUMENT...: with these arguments the error is one line that contains TEXT.
expect() {
  text=$1
  shift
  "$program" "$@" >"$folder/out" 2>"$folder/error"
  status=$?
  lines=$(wc -l <"$folder/error")
  if [ "$status" != 1 ] || [ "$lines" != 1 ] || [ -s "$folder/out" ] || ! grep -qF -e "$text" "$folder/error"; then
    echo "fashion_mnist $*: status $status, $lines lines of error, expected status 1 and one line with '$text'; it said:"
    cat "$folder/error" "$folder/out"
    failures=$((failures + 1))
  fi
}

# data NAME IMAGES LABELS: a folder with both sets in files of these bytes, in octal escapes; prints its path.
data() {
  mkdir "$folder/$1"
  for set in train t10k; do
    printf "$2" >"$folder/$1/$set-images-idx3-ubyte"
    printf "$3" >"$folder/$1/$set-labels-idx1-ubyte"
  done
  echo "$folder/$1"
}
size='\000\000\000\034\000\000\000\034' # 28 x 28
no_labels='\000\000\010\001\000\000\000\000'

expect "--no-such-option" --no-such-option
expect "rnn" --model rnn
expect "--epochs" --epochs 0
expect "--lr" --lr minus
expect "--clip" --fp32 --clip 1
expect "many" --loss-scale many
expect "--epochs" --epochs
expect "apt install dataset-fashion-mnist" --data /nonexistent
expect "cuda" --device cuda
expect "the training data is empty" --data "$(data empty "\000\000\010\003\000\000\000\000$size" "$no_labels")"
expect "takes 2352 bytes, found 3" --data "$(data truncated "\000\000\010\003\000\000\000\003${size}abc" "$no_labels")"
expect "begins with the bytes" --data "$(data "no_idx" "PK\003\004" "$no_labels")"
expect "is damaged" --data "$(data "no_gzip" "\037\213\010\000abc" "$no_labels")"
expect "a label for each" --data "$(data few "\000\000\010\003\000\000\000\000$size" '\000\000\010\001\000\000\000\001\001')"

[ "$failures" = 0 ]
