#!/usr/bin/env python3
"""Holds docs/architecture.md against the includes of the tree.

The page's table "Folders" has a row per folder: its path, what is in it, which folders it may include, which library headers it
alone may include.  Checked: each include between folders is in the table; no circle of files (a header and the source of the
same name count as one file); library headers stay in their folder; each folder has a row, and each file that the page names
exists.  Prints each finding; ends with 1 if there is any.
"""
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
PAGE = "docs/architecture.md"
findings = []


def tracked(*patterns):
    return subprocess.check_output(["git", "ls-files", *patterns], text=True).split("\n")[:-1]


def table():
    rows = []
    for line in open(PAGE, encoding="utf-8"):
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            names = [re.findall(r"`([^`]+)`", c) for c in cells]
            rows.append((names[0][0].rstrip("/"), [n.rstrip("/") for n in names[2]], names[3]))
    return rows


rows = table()
files = [f for f in tracked("include", "src", "cuda", "tools") if re.search(r"\.(c|h|cu|cuh|inc)$", f) and os.path.exists(f)]
known = set(files)


def folder_of(path):
    fits = [name for name, _, _ in rows if path.startswith(name + "/")]
    return max(fits, key=len) if fits else None


def target_of(path, included):
    for base in (os.path.dirname(path), "include", "src", "tools", "."):
        candidate = os.path.normpath(os.path.join(base, included))
        if candidate in known:
            return candidate
    return None


def room_of(path):  # a header and its source are one room, NAME_internal.h is NAME's private header
    return re.sub(r"(_internal)?\.(c|h|cu|cuh|inc)$", "", path)


arrows = {}
allowed = {name: set(may) for name, may, _ in rows}
for path in files:
    here = folder_of(path)
    if not here:
        findings.append(f"{path}: its folder has no row in {PAGE}")
        continue
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^">]+)[">]', line)
        if not match:
            continue
        target = target_of(path, match.group(1))
        if target:
            there = folder_of(target)
            arrows.setdefault(room_of(path), set()).add(room_of(target))
            if there and there != here and there not in allowed[here]:
                findings.append(f"{path}:{number}: {here}/ may not include {there}/ ({target})")
        for owner, _, headers in rows:
            if any(re.fullmatch(h, match.group(1)) for h in headers) and not any(
                re.fullmatch(h, match.group(1)) for name, _, own in rows if here == name for h in own
            ):
                findings.append(f"{path}:{number}: only {owner}/ may include {match.group(1)}")
                break


def circles():
    """Strongly connected components of more than one room (Tarjan, without recursion)."""
    index, low, on, stack, found, counter = {}, {}, set(), [], [], 0
    for root in sorted(arrows):
        if root in index:
            continue
        work = [(root, iter(sorted(arrows.get(root, ()))))]
        index[root] = low[root] = counter
        counter += 1
        stack.append(root)
        on.add(root)
        while work:
            room, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = counter
                    counter += 1
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(arrows.get(other, ())))))
                    break
                if other in on:
                    low[room] = min(low[room], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[room])
                if low[room] == index[room]:
                    group = []
                    while True:
                        other = stack.pop()
                        on.discard(other)
                        group.append(other)
                        if other == room:
                            break
                    if len(group) > 1:
                        found.append(sorted(group))
    return found


for group in circles():
    findings.append("circle of files: " + ", ".join(group))
for name, may, _ in rows:
    if not os.path.isdir(name):
        findings.append(f"{PAGE}: there is no folder {name}/")
    for other in may:
        if other not in allowed:
            findings.append(f"{PAGE}: {name}/ may include {other}/, which has no row")
text = open(PAGE, encoding="utf-8").read()
for name in set(re.findall(r"`((?:src|cuda|include|tools|tests|docs|\.ci)/[\w./-]+\.\w+)`", text)):
    if not os.path.exists(name):
        findings.append(f"{PAGE}: there is no {name}")
if not rows:
    findings.append(f"{PAGE}: no table of folders was found")
print("\n".join(findings) if findings else f"{PAGE}: {len(rows)} folders, {len(files)} files, no circle, no arrow that is not in the table")
sys.exit(1 if findings else 0)
