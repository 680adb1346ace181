#!/usr/bin/env python3
"""A flood of wrong passwords beside a user with the right one, and the time that an unknown user takes.

Starts `chronolith serve` with an access file of two users with bcrypt hashes. Shows that
- 500 wrong logins a second leave the 99th percentile of the right one below 1.5 times what it is alone,
- the server spends at most one core and a tenth on them,
- wrong passwords of known and of unknown users take equally long (Mann-Whitney test at 1 %)."""
import argparse
import base64
import concurrent.futures
import ctypes
import http.client
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
import tsdbwire as wire

FLOOD_THREADS = 120
RATIO_MAX = 1.5
CORES_MAX = 1.1
# Two-sided, 1 %.
Z_MAX = 2.58


def bcrypt(password, cost):
    """The hash of a password by the C library's crypt(3)."""
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    alphabet = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    # 22 characters hold 132 bits for a salt of 128: the last one has four bits clear.
    salt = "".join(random.choice(alphabet) for _ in range(21)) + random.choice(".Oeu")
    return crypt(password.encode(), ("$2b$%02d$%s" % (cost, salt)).encode()).decode()


class Caller:
    """One kept connection."""

    def __init__(self, port, user, password):
        self.port, self.connection = port, None
        self.set_login(user, password)

    def set_login(self, user, password):
        self.headers = {"Authorization": "Basic " + base64.b64encode((user + ":" + password).encode()).decode()}

    def call(self):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        started = time.perf_counter()
        try:
            self.connection.request("GET", "/api/v1/labels", headers=self.headers)
            answer = self.connection.getresponse()
            answer.read()
        except (http.client.HTTPException, OSError):
            self.connection.close()
            self.connection = None
            raise
        return answer.status, time.perf_counter() - started


def cpu_seconds(pid):
    fields = open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def in_process(function, *arguments):
    """Result of a function that runs in a process of its own: threads of one interpreter wait for each other."""
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def right_logins(port, seconds):
    """Latencies of a user who asks 50 times a second with the right password."""
    caller, latencies, end = Caller(port, "right", "secret"), [], time.monotonic() + seconds
    while time.monotonic() < end:
        status, seconds_taken = caller.call()
        if status != 200:
            raise SystemExit("the right password got %d" % status)
        latencies.append(seconds_taken)
        time.sleep(0.02)
    return latencies


def flood(port, seconds, rate):
    """Wrong passwords, half of them of an unknown user. Returns the number of answers by status."""
    # The clients of the flood have a machine of their own elsewhere.
    os.nice(19)
    counts, lock, started = {}, threading.Lock(), time.monotonic()
    tickets, end = itertools.count(), started + seconds

    def run(number):
        user = ("right", "nosuch")[number % 2]
        caller = Caller(port, user, "")
        while time.monotonic() < end:
            # Those that wait for an answer leave their turns to the others.
            time.sleep(max(0, started + next(tickets) / rate - time.monotonic()))
            caller.set_login(user, "wrong%x" % random.getrandbits(64))
            status = caller.call()[0]
            with lock:
                counts[status] = counts.get(status, 0) + 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(FLOOD_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts


def mann_whitney_z(first, second):
    """Standardised rank sum of two samples; ties are too rare in times to matter."""
    ranked = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    rank_sum = sum(rank for rank, (_, group) in enumerate(ranked, 1) if group == 0)
    n, m = len(first), len(second)
    mean, deviation = n * (n + m + 1) / 2, (n * m * (n + m + 1) / 12) ** 0.5
    return (rank_sum - mean) / deviation


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=500, help="wrong logins per second")
    parser.add_argument("--cost", type=int, default=10, help="of bcrypt")
    parser.add_argument("--samples", type=int, default=60, help="times per kind of user")
    args = parser.parse_args()
    passed, failed = 0, 0

    def check(is_right, text):
        nonlocal passed, failed
        passed, failed = passed + is_right, failed + (not is_right)
        print(("ok    " if is_right else "FAILED") + " " + text)

    with tempfile.TemporaryDirectory() as directory:
        access = os.path.join(directory, "access.yml")
        with open(access, "w") as file:
            file.write("principals:\n")
            for user in "right", "other":
                file.write("- {name: %s, user: %s, password_bcrypt: %s, scopes: [read]}\n" % (user, user, bcrypt("secret", args.cost)))
        port = wire.free_port(random.randrange(20000, 30000))
        command = [args.binary, "serve", "--data-dir", os.path.join(directory, "data"), "--http", "127.0.0.1:%d" % port, "--access.file", access]
        with open(os.path.join(directory, "log"), "wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            ready = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            while True:
                try:
                    ready.request("GET", "/-/ready")
                    answer = ready.getresponse()
                    answer.read()
                    if answer.status == 200:
                        break
                except OSError:
                    ready.close()
                time.sleep(0.1)
            known, unknown = Caller(port, "other", "wrong"), Caller(port, "nosuch", "wrong")
            times = {known: [], unknown: []}
            for _ in range(args.samples):
                known.set_login("other", "wrong%x" % random.getrandbits(64))
                unknown.set_login("nosuch", "wrong%x" % random.getrandbits(64))
                for caller in random.sample([known, unknown], 2):
                    status, seconds = caller.call()
                    assert status == 401, status
                    times[caller].append(seconds)
            z = mann_whitney_z(times[known], times[unknown])
            medians = tuple(1000 * percentile(times[caller], 0.5) for caller in (known, unknown))
            check(abs(z) < Z_MAX, "known user %.1f ms, unknown %.1f ms (medians of %d), z %.2f" % (*medians, args.samples, z))
            in_process(right_logins, port, 1)
            alone = in_process(right_logins, port, args.seconds)
            before, started = cpu_seconds(server.pid), time.monotonic()
            with concurrent.futures.ProcessPoolExecutor(1) as pool:
                flooding = pool.submit(flood, port, args.seconds, args.rate)
                together = in_process(right_logins, port, args.seconds)
                counts = flooding.result()
            cores = (cpu_seconds(server.pid) - before) / (time.monotonic() - started)
            p99 = [1000 * percentile(values, 0.99) for values in (alone, together)]
            check(p99[1] < RATIO_MAX * p99[0], "right login p99 %.2f ms alone, %.2f ms beside the flood" % tuple(p99))
            check(cores <= CORES_MAX, "%.2f cores for %d wrong logins (%s)" % (cores, sum(counts.values()), counts))
        finally:
            server.terminate()
            server.wait()
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
