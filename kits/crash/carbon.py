#!/usr/bin/env python3
"""Kill the server at random moments and look for carbon points that are gone.

The server closes a connection after all of its points are durable; that is the
only acknowledgement carbon has.  Each round: start the server, check that every
point of every connection that it closed is there with its value, write for a
random while, then SIGKILL it.  Half of the paths have a reorder buffer, and
points come in groups in reverse order.
"""
import argparse
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "wire"))
from tsdbwire import Client, free_port  # noqa: E402

SCHEMAS = "[sorted]\npattern = ^crash\\.sorted\\.\nretentions = 1s:10y\nreorderBuffer = 20\n"
BASE_S = 1_600_000_000


def start(a, work, port, carbon):
    rules = os.path.join(work, "schemas.conf")
    with open(rules, "w") as f:
        f.write(SCHEMAS)
    cmd = shlex.split(a.launch.format(port=port, dir=work + "/data", carbon=carbon, schemas=rules))
    begun = time.time()
    proc = subprocess.Popen(cmd, stdout=open(a.log, "ab"), stderr=subprocess.STDOUT)
    client = Client("http://127.0.0.1:%d" % port, timeout=120)
    while time.time() < begun + a.ready:
        if proc.poll() is not None:
            break
        try:
            if client.request("GET", "/-/ready")[0] == 200:
                return proc, client, time.time() - begun
        except OSError:
            pass
        time.sleep(0.02)
    return proc, client, None


def send(carbon, lines):
    """Sends lines over one connection; returns True once the server has closed it."""
    with socket.create_connection(("127.0.0.1", carbon), timeout=10) as s:
        s.sendall("".join(lines).encode())
        s.shutdown(socket.SHUT_WR)
        return s.recv(1) == b""


def verify(client, acked, newest):
    """-> (lost, wrong, seen) over all paths."""
    query = '{__name__=~"crash[.].+"}[%ds]' % (newest + 10)
    status, ans = client.api("/api/v1/query", {"query": query, "time": str(BASE_S + newest + 1), "nocache": "1"})
    if ans.get("status") != "success":
        raise SystemExit("verify: HTTP %d %s" % (status, str(ans)[:300]))
    got = {s["metric"]["__name__"]: {int(float(t)): float(v) for t, v in s["values"]} for s in ans["data"]["result"]}
    lost = wrong = 0
    for path, points in acked.items():
        have = got.get(path, {})
        lost += sum(1 for t in points if t not in have)
        wrong += sum(1 for t, v in points.items() if have.get(t, v) != v)
    return lost, wrong, sum(map(len, got.values()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--launch", required=True, help="server command with {port}, {dir}, {carbon} and {schemas}")
    p.add_argument("--port", type=int, default=19640)
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--seconds", type=float, default=2, help="longest writing time of a round")
    p.add_argument("--writers", type=int, default=4)
    p.add_argument("--ready", type=float, default=60)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--log", default="/dev/null")
    a = p.parse_args()
    rnd, work = random.Random(a.seed), tempfile.mkdtemp(prefix="crash.")
    os.makedirs(work + "/data")
    paths = ["crash.%s.s%d" % (kind, i) for kind in ("sorted", "plain") for i in range(2 * a.writers)]
    acked = {path: {} for path in paths}
    sent, lock, newest, bad = [0], threading.Lock(), [0], 0
    try:
        for round_no in range(a.rounds + 1):
            port = free_port(a.port + round_no % 30)
            carbon = free_port(port + 1)
            proc, client, took = start(a, work, port, carbon)
            if took is None:
                print("round %d: server did not come back" % round_no)
                bad += 1
                break
            total = sum(map(len, acked.values()))
            lost, wrong, seen = verify(client, acked, newest[0]) if total else (0, 0, 0)
            print("round %2d: up in %.2fs, %d acknowledged, %d lost, %d wrong, %d present"
                  % (round_no, took, total, lost, wrong, seen), flush=True)
            bad += lost + wrong
            if round_no < a.rounds:
                stop = threading.Event()

                def write(k):
                    mine = paths[k::a.writers]
                    while not stop.is_set():
                        with lock:
                            first = newest[0] + 1
                            newest[0] += 10
                        times = range(first + 9, first - 1, -1)
                        lines = ["%s %d %d\n" % (path, t * 3, BASE_S + t) for t in times for path in mine]
                        try:
                            closed = send(carbon, lines)
                        except OSError:
                            continue
                        # A reset is no acknowledgement, and a kill closes connections as well.
                        if closed and not stop.is_set():
                            with lock:
                                sent[0] += len(lines)
                                for path in mine:
                                    acked[path].update((BASE_S + t, t * 3.0) for t in times)

                threads = [threading.Thread(target=write, args=(k,)) for k in range(a.writers)]
                [t.start() for t in threads]
                time.sleep(rnd.uniform(0.2, a.seconds))
                stop.set()
                # What is closed from here on may have been closed by the kill.
                time.sleep(rnd.uniform(0, 0.02))
            proc.send_signal(signal.SIGKILL)
            proc.wait()
            if round_no < a.rounds:
                [t.join() for t in threads]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("%d points acknowledged" % sent[0])
    ok = bad == 0 and sent[0] > 0
    print("%d passed, %d failed" % (int(ok), int(not ok)))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
