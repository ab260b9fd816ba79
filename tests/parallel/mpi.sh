# shellcheck shell=bash disable=SC2034,SC2154 # used by those who source this; set by tests/lib.sh
# For tests of ranks; sourced after tests/lib.sh.  Ends with 77 if there is no Open MPI.  mpi_run: the words before `-n N PROGRAM`.
export OMP_NUM_THREADS=1 # with more, cells that threads cannot share equally are summed in another order
if ! command -v mpirun >/dev/null || ! grep -q '^OMPI_FOUND:INTERNAL=1' "$build/CMakeCache.txt"; then
    echo "skipped: no Open MPI here, or this build was made without (FLIM_MPI)"
    exit 77
fi
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # Open MPI keeps memory to the end, in parts that it has unloaded by then
mpi_run=(mpirun --oversubscribe --allow-run-as-root --bind-to none)
train=$build/train_cv
