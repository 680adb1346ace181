#!/usr/bin/env python3
"""Asks promtool, Prometheus and chronolith for their verdict over the same web configuration files.

    verdicts.py CHRONOLITH [--promtool PROGRAM] [--prometheus PROGRAM]

The files and the expected verdicts are those of the unit test,
crates/server/src/web_config/tests/verdicts.txt. promtool answers for files without new keys; the newest
Prometheus is started with each file, and its verdict is whether it serves. A program that is not there is
reported as not run. Exit code 1 if a verdict differs from the expected one.
"""
import argparse
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

CASES = pathlib.Path(__file__).parent / "../../crates/server/src/web_config/tests/verdicts.txt"


def make_files(folder):
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509", "-days", "2"]
    openssl("req", *curve, "-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE")
    openssl("req", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=authority")
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "other.key")
    (folder / "empty.pem").write_text("")
    (folder / "text.pem").write_text("no certificate\n")


def cases():
    for part in CASES.read_text().split("\n## ")[1:]:
        head, _, yaml = part.partition("\n")
        verdict, name = head.split(": ", 1)
        kind, *age = verdict.split()
        yield kind, "new" in age, name.split(": ")[0], yaml


def inlined(yaml, folder):
    lines = []
    for line in yaml.splitlines():
        before, at, name = line.partition("@")
        lines.append(before + json.dumps((folder / name).read_text()) if at else line)
    return "\n".join(lines) + "\n"


def takes(*command):
    return subprocess.run(command, capture_output=True).returncode == 0


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def serves(program, file, folder):
    """Starts Prometheus with the file; it ends by itself if it refuses the file."""
    (folder / "prometheus.yml").write_text("")
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        process = subprocess.Popen(
            [program, f"--config.file={folder}/prometheus.yml", f"--web.config.file={file}",
             f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        is_served = False
        for line in process.stderr:
            is_served |= "TLS is" in line and "abled" in line
            if is_served:
                break
        process.kill()
        process.wait()
        return is_served


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chronolith")
    parser.add_argument("--promtool", default=shutil.which("promtool"))
    parser.add_argument("--prometheus")
    options = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_files(folder)
        for kind, is_new, title, yaml in cases():
            file = folder / "web.yml"
            file.write_text(inlined(yaml, folder))
            found = {"chronolith": (takes(options.chronolith, "check", "web-config", str(file)), kind == "good")}
            if options.promtool and not is_new:
                found["promtool"] = (takes(options.promtool, "check", "web-config", str(file)), kind != "bad")
            if options.prometheus:
                found["prometheus"] = (serves(options.prometheus, file, folder), kind != "bad")
            for program, (is_taken, is_expected) in found.items():
                if is_taken == is_expected:
                    passed += 1
                else:
                    failed += 1
                    print(f"FAILED {program}: {title}: {'taken' if is_taken else 'refused'}")
    for program in ("promtool", "prometheus"):
        if not getattr(options, program):
            print(f"not run: {program} is not there")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
