#!/bin/bash
# Quick checks of the source text: format, banned functions, who may include what, shell scripts.  Prints each finding; ends
# with code 1 where there is any.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bad=0

found() { # title, text of the findings
    if [ -n "$2" ]; then
        printf '%s:\n%s\n' "$1" "$2"
        bad=1
    fi
}

mapfile -t c_files < <(git ls-files 'src/*.[ch]' 'include/*.h' 'tools/*.[ch]' 'cuda/*.[ch]' 'tests/*.[ch]')
mapfile -t programs < <(git ls-files 'tools/*.[ch]')
mapfile -t library < <(git ls-files 'src/*.[ch]' 'include/*.h' 'cuda/*.[ch]' 'cuda/*.cu' 'cuda/*.cuh')
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)

clang-format --dry-run -Werror "${c_files[@]}" || bad=1

# Code without comments and with texts emptied, each line as FILE:LINE:CODE.
code() {
    local file
    for file in "$@"; do
        gcc -fpreprocessed -dD -E -x c "$file" 2>/dev/null |
            awk -v file="$file" '/^# [0-9]+ "/ { line = $2; next } { gsub(/"([^"\\]|\\.)*"/, "\"\""); print file ":" line++ ":" $0 }'
    done
}
ours=$(code "${library[@]}")
everything=$ours$'\n'$(code "${programs[@]}")
call='(^|[^A-Za-z0-9_])'
found "Banned functions (unbounded or unchecked)" "$(grep -E "$call(sprintf|vsprintf|strcpy|strcat|atoi|atol|atoll|atof|gets|strtok|mktemp|tmpnam|alloca)[[:space:]]*\(" <<<"$everything")"
found "The library neither prints nor exits" "$(grep -E "$call(exit|abort|printf|vprintf|puts|putchar|perror)[[:space:]]*\(|fprintf[[:space:]]*\([[:space:]]*std(err|out)" <<<"$ours")"
found "Host memory goes through src/core/alloc.h" "$(grep -vE '^src/core/alloc\.c:' <<<"$ours" | grep -E "$call(malloc|calloc|realloc|aligned_alloc|posix_memalign|strdup|strndup|asprintf)[[:space:]]*\(")"

found "Files are written by src/core/file.h" "$(grep -vE '^src/core/(temporary_)?file\.c:' <<<"$everything" | grep -E "$call(rename|renameat2?|creat|mkstemps?|mkostemps?|freopen|linkat|symlink)[[:space:]]*\(|O_CREAT|O_TMPFILE" | grep -v 'tmpfile')"
found "Files are opened for writing by src/core/file.h" "$(git grep -nE '\<(fopen|fdopen)\([^"]*"[wa]' -- src tools cuda include ':!src/core/file.c')"

includes() { # pattern of the header, pathspecs
    local header=$1
    shift
    git grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$header" -- "$@"
}
found "src/ and include/ know no CUDA" "$(includes '(cuda|cudnn|cublas|nvml|\.\./cuda)' src include)"
found "src/ includes nothing from tools/, tests/ or cuda/" "$(includes '(\.\./|tools/|tests/|cuda/|common/)' src include)"
.ci/architecture.py || bad=1 # which folder may include which, and which libraries; no circle of files

shellcheck -S warning -x "${scripts[@]}" || bad=1
exit $bad
