# Sourced by the scripts beside it with $program set: how an example must fail.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
export HALFGRAD_CUDA_MODULE=/nonexistent/module.so # there is no GPU, wherever this runs

# expect_error TEXT ARGUMENT...: with these arguments the program says in one line what is wrong, which contains TEXT, and
# ends with status 1; a crash would end it with another.
expect_error() {
  text=$1
  shift
  "$program" "$@" >"$folder/out" 2>"$folder/error"
  status=$?
  lines=$(wc -l <"$folder/error")
  if [ "$status" != 1 ] || [ "$lines" != 1 ] || [ -s "$folder/out" ] || ! grep -qF -e "$text" "$folder/error"; then
    echo "$program $*: status $status, $lines lines of error, expected status 1 and one line with '$text'; it said:"
    cat "$folder/error" "$folder/out"
    failures=$((failures + 1))
  fi
}
