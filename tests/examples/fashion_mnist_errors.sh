#!/bin/sh
# fashion_mnist_errors.sh PROGRAM: whatever is wrong, the program says so in one line and ends with status 1.
set -u
program=$1
. "$(dirname "$0")/expect_error.sh"

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

expect_error "--no-such-option" --no-such-option
expect_error "rnn" --model rnn
expect_error "--epochs" --epochs 0
expect_error "--lr" --lr minus
expect_error "--clip" --fp32 --clip 1
expect_error "many" --loss-scale many
expect_error "--epochs" --epochs
expect_error "apt install dataset-fashion-mnist" --data /nonexistent
expect_error "cuda" --device cuda
expect_error "the training data is empty" --device cpu --data "$(data empty "\000\000\010\003\000\000\000\000$size" "$no_labels")"
expect_error "takes 2352 bytes, found 3" --data "$(data truncated "\000\000\010\003\000\000\000\003${size}abc" "$no_labels")"
expect_error "begins with the bytes" --data "$(data "no_idx" "PK\003\004" "$no_labels")"
expect_error "is damaged" --data "$(data "no_gzip" "\037\213\010\000abc" "$no_labels")"
expect_error "a label for each" --data "$(data few "\000\000\010\003\000\000\000\000$size" '\000\000\010\001\000\000\000\001\001')"

[ "$failures" = 0 ]
