#!/usr/bin/env python3
"""Verdicts of promtool and of `chronolith rules check|test` about the files of `check/` and `test/`.

usage: verdicts.py [--record] [--only TEXT] [--promtool PROGRAM] [--older PROGRAM] [BINARY]

PROGRAM is promtool 3.16, by default built from the Go module that tools/peers names, into the user's cache (once, needs Go); an older one,
such as Debian's, is compared where it has the feature, and differences between the versions are listed. BINARY is chronolith; without
it the verdicts are recorded (--record) or compared with the recorded ones alone. The first line of a file may have arguments: `# args: --lint=all`.

A verdict is the exit code and, for test files, one character per test: `+` passed, `-` failed, `!` the file could not be used.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parents[1] / "tools/peers"
RECORD = HERE / "verdicts.txt"
MODULE = "github.com/prometheus/prometheus"
# Files with another verdict of ours, and the reason.
OTHER = {
    "test/file-question-mark-in-brackets.yml": "YAML 1.2 allows the question mark",
}
# Arguments that promtool 2.42 does not know.
NEWER = ("--run", "--diff", "--debug", "--ignore-unknown-fields")


def build_promtool():
    """Returns the path of promtool in the version of tools/peers, built first if it is not there."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "chronolith-peers/promtool"
    program = cache / "promtool"
    if program.is_file():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("go.mod", "go.sum"):
            shutil.copy(PEERS / name, folder)
        version = subprocess.run(["go", "list", "-m", "-f", "{{.Version}}", MODULE], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run(["go", "get", "-tool", f"{MODULE}/cmd/promtool@{version}"], cwd=folder, check=True, env={**os.environ, "GOFLAGS": "-mod=mod"})
        subprocess.run(["go", "build", "-ldflags", "-s -w", "-o", program, f"{MODULE}/cmd/promtool"], cwd=folder, check=True)
    return program


def arguments(path):
    """Returns the arguments that the first line of a file has."""
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("# args:").split() if first.startswith("# args:") else []


def outcomes(junit):
    """Returns one character per test of a JUnit report."""
    cases = xml.etree.ElementTree.parse(junit).getroot().iter("testcase")
    sign = lambda case: "!" if case.find("error") is not None else "-" if case.find("failure") is not None else "+"
    return "".join(map(sign, cases))


def verdict(program, path, is_ours=False, has_junit=True):
    """Returns the exit code of a program and the outcomes of tests."""
    kind = path.parent.name
    command = [str(program), *(["rules", kind] if is_ours else [kind, "rules"])]
    with tempfile.TemporaryDirectory() as folder:
        junit = pathlib.Path(folder) / "junit.xml"
        with_junit = [f"--junit={junit}"] if kind == "test" and has_junit else []
        if not is_ours:
            command[2:2] = with_junit
            with_junit = []
        run = subprocess.run([*command, *with_junit, *arguments(path), str(path.relative_to(HERE))], cwd=HERE, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return f"{run.returncode} {outcomes(junit)}".strip() if junit.is_file() else str(run.returncode)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--promtool", type=pathlib.Path)
    parser.add_argument("--older", type=pathlib.Path)
    parser.add_argument("binary", nargs="?", type=lambda name: pathlib.Path(name).resolve())
    options = parser.parse_args()
    promtool = options.promtool or build_promtool()
    recorded = {}
    if RECORD.is_file():
        lines = [line for line in RECORD.read_text().splitlines() if not line.startswith("#")]
        recorded = dict(line.split(": ", 1) for line in lines)
    found, by_version, failures = {}, [], []
    paths = sorted([*HERE.glob("check/*.yml"), *HERE.glob("test/*.yml")])
    for path in (path for path in paths if options.only in str(path)):
        name = str(path.relative_to(HERE))
        current = verdict(promtool, path)
        older = "not run"
        if options.older and not any(argument.startswith(NEWER) for argument in arguments(path)):
            older = verdict(options.older, path, has_junit=False)
            if older != current.split()[0]:
                by_version.append(f"{name}: {current.split()[0]}, older {older}")
        found[name] = f"{current} | {older}"
        if not options.record and recorded.get(name, "").split(" | ")[0] != current:
            failures.append(f"{name}: promtool {current}, recorded {recorded.get(name)}")
        if options.binary:
            ours = verdict(options.binary, path, is_ours=True)
            if (ours != current) != (name in OTHER):
                failures.append(f"{name}: promtool {current}, ours {ours}")
    if options.record:
        head = "# Verdicts of promtool 3.16 and, after the bar, exit codes of promtool 2.42; written by verdicts.py --record.\n"
        RECORD.write_text(head + "".join(f"{name}: {text}\n" for name, text in found.items()))
    for title, lines in (("by version", by_version), ("failed", failures)):
        for line in lines:
            print(f"{title}: {line}")
    names = {failure.split(":")[0] for failure in failures}
    print(f"{len(found) - len(names)} passed, {len(names)} failed")
    sys.exit(1 if failures or not found else 0)


main()
