#!/usr/bin/env python3
"""Record the answers of a program to a fixed series of requests, or compare them with a recording.

    run.py PROGRAM --record FILE
    run.py PROGRAM --compare FILE
    run.py --self-check
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "wire")]
import recording  # noqa: E402
from exchange import Packet, send_until  # noqa: E402
from servers import Server, variants  # noqa: E402


def ask_all(program, root, only, bodies=None):
    """The answers of all servers as entries of a recording; whole bodies go to files of the folder `bodies`."""
    words = subprocess.run([program, "version"], check=True, capture_output=True, text=True).stdout.split()
    entries = []
    for variant in variants():
        if only and variant.name not in only:
            continue
        server = Server(program, variant, root, words[1])
        try:
            for case in variant.cases():
                if isinstance(case, Packet):
                    case.send(server.ports[case.listener])
                    continue
                answer = ask(server, case)
                name = server.run.replace(recording.request_name(variant.name, case))
                if bodies and answer:
                    with open(os.path.join(bodies, str(len(entries))), "wb") as out:
                        out.write(answer.body)
                entries.append(recording.entry_of(name, answer, server.run, case.rules))
        finally:
            server.stop()
    return entries


def ask(server, case):
    try:
        return send_until(server.ports["http"], case)
    except OSError as error:
        raise SystemExit("%s %s: %s\n%s" % (case.method, case.target, error, server.last_lines()))


def self_check():
    tests = unittest.defaultTestLoader.discover(HERE, "test_*.py")
    result = unittest.TextTestRunner(verbosity=1).run(tests)
    failed = len(result.failures) + len(result.errors)
    print("%d passed, %d failed" % (result.testsRun - failed, failed))
    return 1 if failed or not result.testsRun else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="the program chronolith")
    parser.add_argument("--record", metavar="FILE", help="write the answers to a file")
    parser.add_argument("--compare", metavar="FILE", help="compare the answers with those of a file")
    parser.add_argument("--only", action="append", metavar="SERVER", help="only this server (may be repeated)")
    parser.add_argument("--keep", action="store_true", help="keep the folder of data, logs and whole bodies")
    parser.add_argument("--self-check", action="store_true", help="run the tests of this kit")
    arguments = parser.parse_args()
    if arguments.self_check:
        return self_check()
    if not arguments.program or bool(arguments.record) == bool(arguments.compare):
        parser.error("a program and one of --record and --compare are needed")
    recorded = recording.load(arguments.compare) if arguments.compare else []
    if arguments.only:
        recorded = [entry for entry in recorded if entry["request"].split(":")[0] in arguments.only]
    root = tempfile.mkdtemp(prefix="recorded-requests")
    bodies = os.path.join(root, "bodies") if arguments.keep else None
    if bodies:
        os.mkdir(bodies)
    try:
        entries = ask_all(arguments.program, root, arguments.only, bodies)
    finally:
        if arguments.keep:
            print("data, logs and bodies: %s" % root)
        else:
            shutil.rmtree(root, True)
    if arguments.record:
        recording.store(arguments.record, entries)
        print("%d requests recorded" % len(entries))
        return 0
    return recording.report(recording.differences(recorded, entries), len(entries))


if __name__ == "__main__":
    sys.exit(main())
