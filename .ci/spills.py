#!/usr/bin/env python3
"""No kernel keeps more than a few registers in memory, but for those of .ci/spills.txt.

Compiles each cuda/**/*.cu for each architecture with ptxas -v and reads what it says of spills.  A line of the list is

    KERNEL ARCHITECTURES BYTES      the largest spill of a kernel whose (mangled) name contains KERNEL

Prints each finding; ends with 1 if a kernel spills more than 16 bytes, which are constants of a loop, and is not in the list, or more than
it says; of all files also if an entry has nothing left.

Usage: .ci/spills.py [--arch 80,86,89,90] [--jobs N] [FILE.cu ...]
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
flags = argparse.ArgumentParser()
flags.add_argument("--arch", default="80,86,89,90")
flags.add_argument("--jobs", type=int, default=os.cpu_count())
flags.add_argument("files", nargs="*")
options = flags.parse_args()
NOISE = 16  # bytes
files = options.files or subprocess.check_output(["git", "ls-files", "cuda/*.cu"], text=True).split()

allowed = []
for line in open(".ci/spills.txt", encoding="utf-8"):
    words = line.split("#")[0].split()
    if words:
        allowed.append((words[0], words[1].split(","), int(words[2])))


def archs_of(path):
    """wgmma is compiled for sm_90a alone."""
    asked = options.arch.split(",")
    return (["90a"] if "90" in asked else []) if path.endswith("_wgmma.cu") else asked


def compile_one(job):
    arch, path = job
    done = subprocess.run(["nvcc", "-std=c++17", "-O3", "-DNDEBUG", f"-gencode=arch=compute_{arch},code=sm_{arch}", "-Iinclude",
                           "-Isrc", "-I.", "-cubin", "-Xptxas", "-v", path, "-o", os.devnull], capture_output=True, text=True)
    if done.returncode:
        return job, None, done.stderr
    found, name = [], ""
    for line in done.stderr.splitlines():
        match = re.search(r"Compiling entry function '(\w+)'", line)
        name = match.group(1) if match else name
        match = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if "(C75" in line and "Performance Loss" in line:  # wgmma in sequence: each waits for the one before
            found.append((line.split("in the function '")[-1].rstrip("'"), 1 << 20))
        if match and max(int(match.group(1)), int(match.group(2))) > 0:
            found.append((name, max(int(match.group(1)), int(match.group(2)))))
    return job, found, ""


bad, kernels, used = False, 0, set()
with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
    for (arch, path), found, why in pool.map(compile_one, [(a, f) for f in files for a in archs_of(f)]):
        if found is None:
            print(f"{path}, sm_{arch}: not compiled\n{why}")
            bad = True
            continue
        for name, size in found:
            entries = [i for i, (kernel, archs, _) in enumerate(allowed) if kernel in name and arch in archs]
            used.update(entries)
            if size > NOISE and not any(size <= allowed[i][2] for i in entries):
                print(f"{path}, sm_{arch}: {name} spills {size} bytes")
                bad = True
for i, (kernel, archs, size) in enumerate(allowed):
    if not options.files and i not in used and set(archs) & set(options.arch.split(",")):
        print(f".ci/spills.txt: {kernel} spills nowhere any more")
        bad = True
print(f"spills: {len(files)} files for sm_{options.arch}: {'see above' if bad else 'none that is not in the list'}")
sys.exit(bad)
