#!/usr/bin/env bash
# The terminal as a person sees it: a run on a pty of several widths, replayed into a model of the screen.  The bar is one row that is
# rewritten, whatever the width, also after a resize; no rest of it stays.  Colours and bar keep to NO_COLOR and TERM=dumb.  No
# program prints a row of more than 80 columns there, but for words that are longer (paths); in a file every line is whole.
# Usage: test_terminal.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
simulate d.h5
cat >terminal.py <<'PY'
import codecs, fcntl, os, pty, re, select, struct, subprocess, sys, termios

def run(argv, columns, resize=None, **more):
    """The program on a terminal; resize: columns after the first bar.  Its exit code and all that it wrote."""
    master, slave = pty.openpty()
    size = lambda c: fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, c, 0, 0))
    size(columns)
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM", "COLUMNS")} | {"TERM": "xterm"} | more
    child = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, close_fds=True)
    decoder, raw, begun = codecs.getincrementaldecoder("utf8")(), "", False
    while True:
        ready, _, _ = select.select([master], [], [], 0.2)
        if not ready:
            if child.poll() is not None:
                break
            continue
        text = decoder.decode(os.read(master, 4096))
        raw += text
        if resize and not begun and re.search(r"fold \d \(0\.\.", raw):
            begun = True
            size(resize)
    return child.wait(), raw

def replay(raw, columns):
    """Rows of the screen at the end; whether a bar ever went over the edge."""
    rows, y, x, wrapped = [""], 0, 0, False
    for token in re.findall(r"\033\[[0-9;]*[A-Za-z]|[\r\n]|[^\033\r\n]", raw):
        if token == "\r":
            x = 0
        elif token == "\n":
            y += 1
        elif token.startswith("\033["):
            n = int(token[2:-1] or 1) if token[2:-1].isdigit() or not token[2:-1] else 1
            if token[-1] == "A":
                y = max(0, y - n)
            elif token[-1] == "J":
                rows[y] = rows[y][:x]
                del rows[y + 1:]
            elif token[-1] == "K":
                rows[y] = rows[y][:x]
            elif token[-1] != "m":
                raise SystemExit(f"unknown control {token!r}")
        else:
            if x >= columns:
                y, x = y + 1, 0
                while len(rows) <= y:
                    rows.append("")
                wrapped = wrapped or token in "█░"
            while len(rows) <= y:
                rows.append("")
            rows[y] = rows[y][:x].ljust(x) + token + rows[y][x + 1:]
            x += 1
        while len(rows) <= y:
            rows.append("")
    return rows, wrapped

def bars_of(raw):
    return [b for b in re.findall(r"\033\[J([^\r\n\033]+)(?=\r?\033)", raw) if re.search(r"\b(train|val|test|predict|scan|holdout)\b", b)]

def need(ok, what):
    if not ok:
        print("FAILED:", what)
        sys.exit(1)

PY
cat >screen.py <<'PY'
import re, sys
from terminal import bars_of, need, replay, run

build = sys.argv[1]
train = [build + "/train_cv", "--data", "d.h5", "--preset", "tiny", "--folds", "2", "--epochs", "2", "--batch", "4",
         "--device", "cpu", "--workers", "2", "--cv", "stratified"]
for columns in (40, 80, 120):
    code, raw = run(train + ["--out", f"r{columns}"], columns)
    rows, wrapped = replay(raw, columns)
    bars = bars_of(raw)
    need(code == 0, f"at {columns} columns: exit code {code}: {raw[-400:]}")
    need(len(bars) > 3, f"at {columns} columns there are {len(bars)} bars only")
    need(all(len(b) < columns for b in bars), f"a bar is wider than {columns} columns: {max(bars, key=len)}")
    need(not wrapped, f"a bar wrapped at {columns} columns")
    need(not any(re.search("[█░]|it/s loss", r) for r in rows), f"the rest of a bar stays on a screen of {columns} columns")
    need(any(b.startswith("fold 0 (0..1) epoch 1/2 train") for b in bars), f"the bar does not say fold, epoch and phase: {bars[0]}")
    if columns == 120:
        need(any("it/s" in b and "loss" in b and "left" in b and "(run " in b for b in bars), "rate, loss and times are not all shown")
    if len(sys.argv) > 2:
        print(f"---- {columns} columns\n" + "\n".join(rows), "\n---- bars\n" + "\n".join(bars[:: max(1, len(bars) // 6)]))
    need(f"Results: r{columns}" in raw and "fold_metrics r" in raw and "predict --model r" in raw, "the last lines do not say what to do next")
code, raw = run(train + ["--out", "resized"], 120, resize=44)
after = raw.split("fold 0 (0..", 1)[1]
need(code == 0 and all(len(b) < 44 for b in bars_of(after)[1:]), "the bar does not follow a resize")
code, raw = run(train + ["--out", "quiet", "--quiet"], 80)
need("Results: quiet" in raw and not bars_of(raw), "--quiet does not name the folder, or draws a bar")
warned = re.compile("\033\\[33mwarning: ")
code, raw = run(train + ["--out", "none"], 80, NO_COLOR="1")
need("warning: " in raw and not warned.search(raw), "NO_COLOR is not respected")
code, raw = run(train + ["--out", "dumb"], 80, TERM="dumb")
need("\033" not in raw, "TERM=dumb is sent controls")
code, raw = run(train + ["--out", "colour"], 80)
need(warned.search(raw), "warnings have no colour")
need(re.search("\033\\[32mfold 0 epoch 1/2 .*\033\\[0m", raw), "the line of the best epoch has no colour")
need(not re.search("\033\\[32m(?!fold|\\|)", raw), "more than the line of an epoch is green")
code, raw = run(train + ["--out", "dull"], 80, NO_COLOR="1")
need(re.search(r"^fold 0 epoch 1/2 ", raw, re.M) or "epoch 1/2 | lr" in raw, "there is no line of an epoch")
need(not re.search("\033\\[[0-9;]*m", raw), "NO_COLOR leaves colours in")
code, raw = run([build + "/predict", "--model", "r80", "--data", "d.h5", "--out", "p.csv", "--device", "cpu", "--batch", "4"], 80)
need(code == 0 and any(re.match(r"model [12] of 2 predict ", b) for b in bars_of(raw)), "predict's bar does not say predict")
PY
check "the screen" python3 screen.py "$build"

# ---- no row is wider than the terminal
cat >rows.py <<'PY'
import re, subprocess, sys
from terminal import need, run

build = sys.argv[1]
programs = "train_cv predict fold_metrics flim_info flim_import flim_repack flim_simulate flim_export gpu_plan flim_bench".split()
subcommands = re.findall(r"^  (\w+) ", subprocess.run([build + "/flim_bench", "--help"], capture_output=True, text=True).stdout.split("Subcommands")[1].split("Help")[0], re.M)
need(len(subcommands) > 4, f"flim_bench --help lists {subcommands}")
calls = [[p, "--help"] for p in programs] + [["flim_bench", s, "--help"] for s in subcommands]
calls += [
    "train_cv --data d.h5 --preset tiny --folds 2 --epochs 2 --batch 16 --device cpu --out wide --augment flim --cv stratified",
    "train_cv --data d.h5 --preset tiny --folds 3 --epochs 1 --batch 16 --device cpu --out wide3 --final --refit --holdout-group donor_1",
    "train_cv --data d.h5 --folds 3 --dry-run",
    "train_cv --data d.h5 --folds 400 --dry-run",
    "train_cv --data d.h5 --fold 9 --dry-run",
    "train_cv --data d.h5 --out wide",
    "predict --model wide --data d.h5 --out p.csv --device cpu",
    "fold_metrics wide --replicates 50 --errors",
    "fold_metrics wide wide3 --replicates 50",
    "flim_info d.h5",
    "flim_repack d.h5 repacked.h5",
    "flim_simulate --cells 12 --bins 16 --out s.h5",
    "flim_simulate --cells 12 --bins 16 --out s.h5",
    "flim_bench step --device cpu --preset tiny --bins 16 --pixels 7 --steps 1 --no-parts",
    "flim_bench stpe",
    "gpu_plan --list",
    "gpu_plan --gpu L4",
    "gpu_plan --gpu L4 --batch auto --preset xlarge",
    "gpu_plan --gpu T4 --show wide/config.yaml",
]
best = 0
for call in calls:
    argv = call.split() if isinstance(call, str) else call
    code, raw = run([f"{build}/{argv[0]}", *argv[1:]], 80)
    need(code in (0, 2, 4), f"{argv} exited with {code}: {raw[-300:]}")
    text = re.sub("\033\\[[0-9;]*m", "", raw)
    for line in text.split("\r\n"):
        line = re.split("\r|\033\\[J", line)[-1]
        best = max(best, len(line))
        need(len(line) <= 80 or len(line.split()[-1]) > 40 or " " not in line.strip(), f"{' '.join(argv)}: {len(line)} columns: {line}")
need(best > 70, f"the widest row has {best} columns: nothing was tried")
# On a wider terminal, and in a file, lines are whole.
narrow, wide = (run([build + "/fold_metrics", "wide", "--replicates", "50"], c)[1] for c in (80, 200))
need(wide.count("\n") < narrow.count("\n") and re.search("acc bal.acc .* logloss", wide), "a wide terminal is not used")
out = subprocess.run([build + "/fold_metrics", "wide", "--replicates", "50"], capture_output=True, text=True).stdout
need(out.replace("\n", "\r\n") in wide or out.splitlines()[:20] == wide.splitlines()[:20], "a file does not get what a wide terminal shows")
log = open("wide/train.log").read()
need(re.search(r"^fold 0 epoch 1/2 .* it/s .* data wait", log, re.M), "train.log has broken lines")
PY
check "rows of 80 columns" python3 rows.py "$build"
run_error() { "$build/train_cv" "$@" >out 2>err; }
run_error --data missing.h5 --device cpu --out x
check "a missing data file leads to flim_simulate and flim_import" grep -q "flim_simulate.*flim_import" err
check "the error appears once" test "$(cat out err | grep -c 'missing.h5: cannot open')" = 1
run_error d.h5
check "a bare path leads to --data" grep -q "did you mean --data d.h5" err
run_error --fold 5 --data d.h5
check "--fold 5 leads to --folds 5" grep -q -- "--folds 5" err
finish
