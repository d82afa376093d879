#!/usr/bin/env bash
# Runs every test of this bundle on this machine's GPU; a missing GPU is a failure.
#
#   ./run.sh                    all tests
#   ./run.sh host-spmm_gpu ...  only these
#   ./run.sh --bench [FILTER]   the criterion suites instead, if they are packed, on WINDROW_DEVICE (the first GPU)
#   WINDROW_TEST_ARGS="--test-threads=1 name"   passed to each test executable
#   WINDROW_WRAP="compute-sanitizer --tool memcheck --error-exitcode 1"   put before each executable
#   WINDROW_GPU_ONLY=1          without the cases on the CPU and the emulator, which a sanitizer only slows down
#   WINDROW_LOGS=DIR            where the full outputs go (default: logs/ beside this script)
#
# The suites of bin/windrow-bench, which is packed with them, are started by hand: see its --help.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
logs="${WINDROW_LOGS:-$here/logs}"
mkdir -p "$logs"
export WINDROW_REQUIRE_GPU=1
export WINDROW_DATA="$here/data"
export LD_LIBRARY_PATH="/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}"

if [ "${1:-}" = --bench ]; then
    # Criterion writes its report below the working folder.
    cd "$here" && exec benches/suites "$@"
fi

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for path in "$here"/tests/*; do names+=("$(basename "$path")"); done
fi

failed=0
passed=0
for name in "${names[@]}"; do
    log="$logs/$name.log"
    started=$SECONDS
    # The options are lists of words on purpose.
    # shellcheck disable=SC2086
    ${WINDROW_WRAP:-} "$here/tests/$name" ${WINDROW_TEST_ARGS:-} >"$log" 2>&1
    status=$?
    counts="$(grep -E '^test result:' "$log" | tail -n 1 | sed 's/^test result: [A-Za-z]*\. //; s/; finished.*//')"
    if [ $status -eq 0 ] && [ -n "$counts" ]; then
        passed=$((passed + 1))
        echo "pass  $name  ($((SECONDS - started)) s)  $counts"
    else
        failed=$((failed + 1))
        echo "FAIL  $name  ($((SECONDS - started)) s)  status $status  ${counts:-no result line}"
        grep -E '^test .* FAILED$|panicked at|========= ERROR SUMMARY' "$log" | head -n 20 | sed 's/^/      /'
        tail -n 5 "$log" | sed 's/^/      | /'
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
