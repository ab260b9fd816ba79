#!/usr/bin/env bash
# The recipes in packaging/, as far as they can be looked at without Docker and Apptainer: their sections, the shell in them, the
# files that they name.  What they build is tried by `.ci/run package`.  Usage: test_packaging.sh BUILD_DIR
set -u
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
folder=$source_folder/packaging

# ---- Dockerfile: one instruction per logical line
sed -E '/^#/d' "$folder/Dockerfile" | sed -E ':a; /\\$/ { N; s/\\\n//; ba }' | sed '/^$/d' >instructions
check "only instructions of Docker" bash -c '! grep -vE "^(FROM|RUN|COPY|WORKDIR|SHELL|CMD) " instructions'
check "it begins FROM" bash -c 'head -n 1 instructions | grep -q "^FROM "'
check "two stages, the first with a name" test "$(grep -c '^FROM ' instructions)" = 2 -a "$(grep -c ' AS build$' instructions)" = 1
check "the second takes from the first" grep -q '^COPY --from=build ' instructions
grep -E '^(SHELL|CMD) ' instructions | cut -d' ' -f2- >lists
check "lists are JSON" bash -c 'while read -r list; do /usr/bin/python3 -c "import json, sys; json.loads(sys.argv[1])" "$list"; done <lists'
{ echo '#!/bin/bash'; sed -n 's/^RUN //p' instructions; } >docker.sh
check "bash takes its commands" bash -n docker.sh

# ---- Apptainer: headers, then sections
sed -E '/^#/d; /^$/d' "$folder/flimcv.def" >definition
check "a header of every stage" test "$(grep -c '^Bootstrap: docker$' definition)" = 2 -a "$(grep -c '^From: ' definition)" = 2 \
    -a "$(grep -c '^Stage: ' definition)" = 2
check "only sections of Apptainer" bash -c '! grep "^%" definition | grep -vE "^%(files( from build)?|post|test|runscript|help)$"'
check "nothing else stands at the left" bash -c '! grep -vE "^(%|    |Bootstrap: |From: |Stage: )" definition'
for section in post test runscript; do
    { echo '#!/bin/sh'; awk -v s="%$section" '/^(%|Bootstrap)/ { in_it = $0 == s; next } in_it' definition; } >"$section.sh"
    check "%$section has commands" test "$(wc -l <"$section.sh")" -gt 1
    check "sh takes %$section" sh -n "$section.sh"
done

check "both take the same images" diff <(grep -oE 'nvidia/cuda:[^ ]+' "$folder/Dockerfile" | sort) <(grep -oE 'nvidia/cuda:[^ ]+' "$folder/flimcv.def" | sort)
for file in $(grep -ohE '(packaging|tools)/[a-z_.]+' "$folder/Dockerfile" "$folder/flimcv.def" | sort -u); do
    check "$file is there" test -e "$source_folder/$file"
done
if command -v shellcheck >/dev/null; then
    check "shellcheck finds nothing" shellcheck -S warning -e SC1091,SC2154 docker.sh post.sh test.sh "$folder"/*.sh
else
    echo "left out: shellcheck's look (apt-get install shellcheck)"
fi
check "CITATION.cff has the project's version" grep -qx "version: $("$build/train_cv" --version | awk '{ print $3 }')" "$source_folder/CITATION.cff"
check "and its date" grep -qx "date-released: $("$build/train_cv" --help=man | awk '/^\.TH/ { print $4 }')" "$source_folder/CITATION.cff"
finish
