#!/usr/bin/env python3
"""Records what Prometheus reports about the rule files of `files/` into `verdicts.txt`, which a test compares with.

usage: record-verdicts.py [PROMTOOL]

The verdicts and messages are those of Prometheus 3.16 (tools/rule-files, needs Go); PROMTOOL is an older one,
whose verdict stands next to them. The order of errors about labels is random in Prometheus: messages are sorted.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parents[2] / "tools/peers"


def older_verdict(promtool, path):
    """Returns `ok RULES` or `failed`."""
    run = subprocess.run([promtool, "check", "rules", "--lint=none", path], capture_output=True, text=True)
    return "ok " + re.search(r"SUCCESS: (\d+) rules found", run.stdout).group(1) if run.returncode == 0 else "failed"


def main():
    promtool = (sys.argv[1:] + [None])[0]
    files = sorted((HERE / "files").glob("*.yaml"))
    out = subprocess.run(["go", "run", "../rule-files/main.go", *files], cwd=PEERS, check=True, capture_output=True, text=True).stdout
    lines = ["# Verdict and messages of Prometheus 3.16, and the verdict of promtool 2.42.\n"]
    for report in re.findall(r"^\S.*\n(?:  .*\n)*", out, re.M):
        head, *messages = report.splitlines()
        name = head.split(": ")[0]
        old = older_verdict(promtool, HERE / "files" / f"{name}.yaml") if promtool else "not run"
        lines.append(f"{head} | {old}\n")
        # The file is decoded a second time for positions, into types with names that end in Node.
        kept = {m for m in messages if m.strip() != "yaml: unmarshal errors:" and not re.search(r"rulefmt\.\w*Node|rulefmt\.ruleGroups", m)}
        key = lambda text: ([int(n) for n in re.findall(r"\d+", text)[:2]], text)
        lines.extend(f"{message}\n" for message in sorted(kept, key=key))
    (HERE / "verdicts.txt").write_text("".join(lines))


main()
