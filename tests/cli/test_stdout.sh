#!/usr/bin/env bash
# "-" is standard output wherever a program writes a file whose path a user names: the bytes are the file's, nothing else is on that
# stream.  The flags come from each program's own --help: one that takes a path and neither says "- is standard output" nor is known
# here as one that is read fails, and so does one that says so without a call that tries it.  Usage: test_stdout.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
simulate d.h5 --height 5 --width 5
call 0 "$build/train_cv" --data d.h5 --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --out run
[ "$failures" = 0 ] || exit 1
cat >calls.py <<'PY'
import os, re, shutil, subprocess, sys

build = sys.argv[1]
programs = sorted(p for p in os.listdir(build) if os.access(f"{build}/{p}", os.X_OK) and os.path.isfile(f"{build}/{p}"))
assert {"train_cv", "predict", "fold_metrics", "gpu_plan", "flim_bench", "flim_info", "flim_export"} <= set(programs), programs
read = {  # flags whose file is read
    "data", "splits", "exclude", "init-weights", "config", "show", "model", "devices", "weights-in", "manifest",
    "pretrained", "pretraining-data", "fold_metrics explain", "fold_metrics embeddings", "gpu_plan apply", "train_cv out", "pretrain out",  # apply, out: refused below
}
bench = ["--device", "cpu", "--preset", "tiny", "--bins", "16", "--pixels", "5", "--batch", "4"]
cells = ["--data", "d.h5", "--model", "run", "--device", "cpu"]
step = ["step", *bench, "--steps", "2", "--no-parts"]
call = {  # a call without the flag; False: what differs from run to run (times) is not compared
    "predict out": (["predict", *cells], True),
    "predict embeddings": (["predict", *cells, "--out", "p.csv"], True),
    "predict explain": (["predict", *cells, "--out", "p.csv", "--explain-bins", "8"], True),
    "fold_metrics csv": (["fold_metrics", "run", "--replicates", "0"], True),
    "fold_metrics json": (["fold_metrics", "run", "--replicates", "0"], True),
    "fold_metrics md": (["fold_metrics", "run", "--replicates", "0"], True),
    "fold_metrics html": (["fold_metrics", "run", "--replicates", "0"], True),
    "flim_info json": (["flim_info", "d.h5"], True),
    "flim_info cells": (["flim_info", "d.h5"], True),
    "flim_export onnx": (["flim_export", "run"], True),
    "flim_simulate out": (["flim_simulate", "--cells", "12", "--bins", "16"], True),
    "gpu_plan json": (["gpu_plan", "--list"], True),
    "flim_bench step json": (["flim_bench", *step], False),
    "flim_bench step losses": (["flim_bench", *step], True),
    "flim_bench step weights-out": (["flim_bench", *step], True),
    "flim_bench step grads-out": (["flim_bench", *step], True),
    "flim_bench feed json": (["flim_bench", "feed", "--data", "d.h5", "--device", "cpu", "--preset", "tiny", "--batch", "4", "--steps", "3", "--rounds", "1"], False),
    "flim_bench loader json": (["flim_bench", "loader", "--data", "d.h5", "--no-scaling", "--passes", "1"], False),
    "flim_bench layers json": (["flim_bench", "layers", *bench], False),
    "flim_bench predict json": (["flim_bench", "predict", *bench, "--batches", "2", "--rounds", "1"], False),
    "flim_bench limits json": (["flim_bench", "limits"], False),
    "flim_bench memory json": (["flim_bench", "memory"], False),
    "flim_bench augment html": (["flim_bench", "augment", "--data", "d.h5"], False),
}
failed = []
tried = set()

def need(ok, what):
    if not ok:
        failed.append(what)

def flags_of(argv):
    text = subprocess.run([f"{build}/{argv[0]}", *argv[1:], "--help"], capture_output=True, text=True).stdout
    text = re.sub(r"\n {20,}", " ", text)
    return re.findall(r"^  --([a-z0-9-]+) \[?(FILE|DIR|RUN|RUN\|FILE|CONFIG|PATH)\]? +(.*)$", text, re.M), text

def attempt(name):
    words, same = call[name]
    flag = name.split()[-1]
    for f in os.listdir("."):
        if f.startswith("out.") or f == "-":
            os.remove(f)
    file = "out.npy" if flag == "embeddings" else "out.file"
    done = subprocess.run([f"{build}/{words[0]}", *words[1:], f"--{flag}", file], capture_output=True)
    if done.returncode in (2, 4) and not done.stdout and re.search(rb"CUDA|gnuplot|no usable|no NVIDIA", done.stderr):
        return print(f"left out: {name}: {done.stderr.decode().strip()[:100]}")
    need(done.returncode == 0, f"{name}: into a file: {done.returncode}: {done.stderr[-300:]}")
    if done.returncode:
        return
    direct = subprocess.run([f"{build}/{words[0]}", *words[1:], f"--{flag}", "-"], capture_output=True)
    need(direct.returncode == 0, f"{name} -: exit code {direct.returncode}: {direct.stderr[-300:]}")
    want = open(file, "rb").read()
    if same:
        need(direct.stdout == want, f"{name} -: {len(direct.stdout)} bytes that are not the file's {len(want)}: {direct.stdout[:80]}")
    else:
        need(direct.stdout[:1] == want[:1] and direct.stdout.rstrip()[-1:] == want.rstrip()[-1:] and len(direct.stdout) > 0.5 * len(want),
             f"{name} -: {direct.stdout[:80]} is not what the file has")
    need(not os.path.exists("-"), f"{name} -: made a file named -")

for program in programs:
    flags, text = flags_of([program])
    if not text.startswith("Usage:"):
        continue
    found = [(program, f) for f in flags]
    if program == "flim_bench":
        for sub in re.findall(r"^  ([a-z]+) ", text.split("Subcommands")[1].split("\nHelp")[0], re.M):
            found += [(f"flim_bench {sub}", f) for f in flags_of(["flim_bench", sub])[0]]
    for where, (flag, kind, about) in found:
        name = f"{where} {flag}"
        if "- is standard output" in about:
            need(name in call, f"{name} is tried by no call here")
            if name in call and name not in tried:
                attempt(name)
                tried.add(name)
        else:
            need(flag in read or name in read, f"{name} takes a {kind}: it is neither known as read nor says that - is standard output")
need(tried == set(call), f"not in any --help: {set(call) - tried}")

# Operands.
for argv, out in ((["flim_repack", "d.h5"], "r.h5"), (["flim_import"], "i.h5")):
    more = [] if argv[0] == "flim_repack" else ["cells", "--class", "_in=in,_act=act"]
    if more and not os.path.isdir("cells"):
        try:
            import numpy
        except ImportError:
            continue
        os.makedirs("cells")
        for i in range(4):
            numpy.save(f"cells/{i}_{'in' if i % 2 else 'act'}.npy", numpy.full((16, 7, 7), i + 1, "u2"))
    whole = subprocess.run([f"{build}/{argv[0]}", *argv[1:], out, *more], capture_output=True)
    piped = subprocess.run([f"{build}/{argv[0]}", *argv[1:], "-", *more], capture_output=True)
    need(whole.returncode == 0 and piped.returncode == 0, f"{argv}: {whole.stderr[-200:]} {piped.stderr[-200:]}")
    need(piped.stdout == open(out, "rb").read() and len(piped.stdout) > 1000, f"{argv} -: not the file's bytes")
    need(b"cells" in piped.stderr and not os.path.exists("-"), f"{argv} -: what it says is not on standard error")

# What cannot be, in one line that says why.
for words, why in ((["train_cv", "--data", "d.h5", "--out", "-"], b"a run is a folder"), (["pretrain", "--data", "d.h5", "--out", "-"], b"a run is a folder"), (["gpu_plan", "--gpu", "L4", "--apply", "-"], b"in its place"),
                   (["predict", *cells, "--out", "-", "--explain", "-"], b"standard output is for one file: --out and --explain")):
    done = subprocess.run([f"{build}/{words[0]}", *words[1:]], capture_output=True)
    need(done.returncode == 2 and why in done.stderr and done.stderr.count(b"\n") == 1 and not done.stdout, f"{words}: {done}")
    need(not os.path.exists("-"), f"{words}: made -")
print("\n".join(failed))
sys.exit(bool(failed))
PY
check "every flag that names a file" python3 calls.py "$build"
sed -n '/left out/p' check.out
finish
