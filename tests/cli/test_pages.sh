#!/usr/bin/env bash
# What programs say of themselves: --help, --help=man, --help=bash and --help=zsh name the same flags, the pages are clean for groff
# and mandoc, and completion completes in a real bash and a real zsh.  Usage: test_pages.sh BUILD_DIR
set -u
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
mapfile -t programs < <(cd "$source_folder/tools" && basename -s .c -- *.c)

for program in "${programs[@]}"; do
    for topic in man bash zsh; do
        call 0 "$build/$program" --help=$topic
        check "$program --help=$topic leaves stderr alone" test ! -s err
        cp out "$program.$topic"
    done
done
call 2 "$build/train_cv" --help=html
says "--help=html: there are --help, --help=man, --help=bash and --help=zsh"
call 0 "$build/train_cv" --cv nonsense --help=man # as --help, it counts before any mistake
call 6 bash -c "'$build/train_cv' --help=man >/dev/full"

# ---- one list of flags
of_help() { sed -nE 's/^  --(\[no-\])?([a-z0-9-]+).*/\2/p' "$1" | grep -vx version | sort; }
of_man() { sed -nE 's/^\\fB\\-\\-(\[no\\-\])?([a-z0-9\\-]+)\\fR.*/\2/p' "$1" | sed 's/\\-/-/g' | grep -vx version | sort; }
of_bash() { sed -nE "s/^    local flags='([^']*)'.*/\1/p" "$1" | tr ' ' '\n' | sed -nE 's/^--//p' | grep -vxE 'help|version' | sort; }
of_zsh() { sed -nE "s/^        '(\(--no-[a-z0-9-]+\)|\*)?--([a-z0-9-]+)=?\[.*/\2/p" "$1" | sort; }
for program in "${programs[@]}"; do
    [ "$program" != flim_bench ] || continue # it has subcommands: below
    "$build/$program" --help >help
    of_help help >flags
    check "$program has flags" test -s flags
    check "$program: the manual page has --help's flags" diff flags <(of_man "$program.man")
    on=$(sed -nE 's/^  --\[no-\]([a-z0-9-]+).*/\1/p' help | paste -sd '|')
    check "$program: bash offers --help's flags" diff flags <(of_bash "$program.bash" | sed -E "s/^no-(${on:-none})\$/\1/" | sort)
    check "$program: zsh offers --help's flags" diff flags <(of_zsh "$program.zsh")
done
for sub in $("$build/flim_bench" --help | sed -nE 's/^  ([a-z]+) .*/\1/p'); do
    "$build/flim_bench" "$sub" --help | of_help - >flags
    check "flim_bench $sub has flags" test -s flags
    check "flim_bench $sub: the manual page has them" diff flags <(sed -n "/^\.SS $sub\$/,/^\.S[SH] /p" flim_bench.man | of_man -)
    check "flim_bench $sub: zsh offers them" diff flags <(sed -n "/^_flim_bench_$sub() {/,/^}/p" flim_bench.zsh | of_zsh -)
    check "flim_bench $sub: bash offers them" grep -q "^_flim_bench_$sub() {" flim_bench.bash
done

# ---- the pages
for program in "${programs[@]}"; do
    for section in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' 'SEE ALSO'; do
        check "$program(1) has $section" grep -qx "\.SH $section" "$program.man"
    done
    check "$program(1) has a short purpose" bash -c "sed -n '/^\.SH NAME/,/^\.SH SYN/p' $program.man | grep -E '^$program .{10,80}\$'"
    for other in $(sed -n '/^\.SH SEE ALSO/,$p' "$program.man" | grep -oE '[a-z_]+\(1\)'); do
        check "$program(1) refers to $other, which there is" test -e "${other%(1)}.man"
    done
    if command -v mandoc >/dev/null; then
        check "mandoc finds nothing in $program(1)" bash -c "! mandoc -Tlint -W style $program.man | grep ."
    fi
    if command -v groff >/dev/null; then
        check "groff finds nothing in $program(1)" bash -c "! groff -ww -man -Tutf8 $program.man 2>&1 >/dev/null | grep ."
    fi
done
command -v mandoc >/dev/null || echo "left out: mandoc's look at the pages (apt-get install mandoc)"
command -v groff >/dev/null || echo "left out: groff's look at the pages (apt-get install groff-base)"
if [ -e "$build/pages/man/train_cv.1" ]; then # sanitizers' builds have none
    check "the build made the page" cmp train_cv.man "$build/pages/man/train_cv.1"
    check "and completion" cmp train_cv.bash "$build/pages/bash/train_cv"
    check "for both shells" cmp train_cv.zsh "$build/pages/zsh/_train_cv"
    cmake --install "$build" --component programs --prefix "$work/prefix" >install.log 2>&1
    for file in share/man/man1/train_cv.1 share/bash-completion/completions/train_cv share/zsh/site-functions/_train_cv \
        share/doc/flimcv/copyright bin/train_cv; do
        check "it is installed: $file" test -s "prefix/$file"
    done
    check "programs alone bring no header" test ! -e prefix/include
    if command -v man >/dev/null; then
        check "man finds it" bash -c "MANPATH=$work/prefix/share/man man -P cat train_cv | grep -q 'number of folds, each with its own test set'"
    fi
fi

# ---- bash
mkdir -p files/folder && touch files/cells.h5 files/a\ b.h5
complete_in_bash() { # complete_in_bash WORD...: what bash offers for the last word
    (
        cd files || exit 1
        # shellcheck disable=SC1090
        source "../$1.bash"
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        compopt() { :; } # only at a prompt
        "$(complete -p "$1" | sed -E 's/.*-F ([^ ]+) .*/\1/')"
        printf '%s\n' "${COMPREPLY[@]}"
    )
}
offers() { # offers 'WANTED, one per word' WORD...
    local want=$1
    shift
    check "bash offers '$want' for '$*'" diff <(tr ' ' '\n' <<<"$want" | sort) <(complete_in_bash "$@" | sort)
}
offers 'stratified stratified-group' train_cv --cv str
offers 'stratified stratified-group' train_cv --cv = str # as bash splits --cv=str
offers 'auto stratified group stratified-group leave-one-group-out' train_cv --cv =
offers '--folds --fold' train_cv --fol
offers '--folds --fold' train_cv --preset tiny --fol
offers '--no-scan' train_cv --no-sc
offers '--no-tta' train_cv --no-tt
offers 'all' train_cv --fold ''
offers 'man bash zsh' train_cv --help =
offers 'cells.h5' train_cv --data c
offers 'cells.h5' train_cv --data = c
offers 'folder' train_cv --out ''
offers '' train_cv --epochs ''
offers '' train_cv ''
offers 'cells.h5' flim_info c
offers 'cells.h5' flim_info --json x.json -- c
offers '' flim_info -- --sc
offers 'folder' fold_metrics ''
offers 'step' flim_bench st
offers '--steps' flim_bench step --step
offers '' flim_bench nonsense --step
check "a name with a blank stays one" test "$(complete_in_bash flim_info a)" = 'a b.h5'
check "bash takes every script" bash -n -- *.bash

# ---- zsh
if ! command -v zsh >/dev/null; then
    echo "left out: completion in zsh (apt-get install zsh)"
    finish
    exit
fi
cat >complete.zsh <<'EOS'
# complete.zsh PROGRAM LINE: what an interactive zsh in files/ shows after LINE and a tabulator
zmodload zsh/zpty
zpty shell zsh -f -i
wait_for() {
    local got line
    while zpty -r shell line; do
        got+=$line
        [[ $got != *$1* ]] || break
    done
    print -r -- "$got"
}
zpty -w shell "cd files; autoload -Uz compinit; compinit -u -D; source ../$1.zsh; LISTMAX=9999; COLUMNS=200; zstyle ':completion:*' list-prompt ''; PS1=; print READY''_NOW"
wait_for READY_NOW >/dev/null
zpty -w shell "bindkey '^I' list-choices; bindkey -s '^X' '^Uprint END''_NOW^M'; print BOUND''_NOW"
wait_for BOUND_NOW >/dev/null
zpty -w -n shell "$2"$'\t\C-x'
wait_for END_NOW
zpty -d shell
EOS
zsh_offers() { # zsh_offers PATTERN PROGRAM REST
    check "zsh offers '$1' for '$2 $3'" bash -c "timeout 20 zsh -f complete.zsh $2 '$2 $3' | sed -E 's/\\x1b\\[[0-9;?]*[a-zA-Z]//g' | grep -aE -- '$1'"
}
zsh_offers 'stratified-group' train_cv '--cv '
zsh_offers 'val-fraction .*share of the training cells' train_cv '--v'
zsh_offers 'cells.h5' train_cv '--data '
zsh_offers 'cells.h5' flim_info ''
zsh_offers 'loader .*loading speed' flim_bench ''
zsh_offers '--steps' flim_bench 'step --s'
finish
