#!/usr/bin/env python3
"""Apache Kafka brokers for tests: fetched from Maven Central once, formatted, started, killed.

    broker.py fetch                  prints the folder of the libraries
    broker.py serve [--count N]      starts N brokers (1), prints their ports and files, then obeys lines of stdin:
                                     kill I, start I, pause I, resume I, partitions TOPIC COUNT, delete TOPIC,
                                     set TOPIC SETTING VALUE, trim TOPIC PARTITION OFFSET (removes records before it),
                                     append TOPIC PARTITION HEX (- for an empty record); ends with stdin

`serve` answers each line with `ok` or `failed: WHY`. Without Java, Maven, openssl or network it prints `not run: WHY`
and exits with 3. Users: alice may do everything, bob nothing; passwords in the printed files.
"""
import argparse
import base64
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import protocol

HERE = os.path.dirname(os.path.abspath(__file__))
START_WITHIN_S = 90
FETCH_WITHIN_S = 300
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
LISTENERS = {
    "PLAIN": "PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MTLS": "SSL",
    "SASLTLS": "SASL_SSL",
    "CONTROLLER": "PLAINTEXT",
}
LOGIN_MODULES = "org.apache.kafka.common.security."


class NotRun(Exception):
    pass


def libraries():
    """Folder of the jars; one per content of pom.xml, complete or not there."""
    pom = os.path.join(HERE, "pom.xml")
    with open(pom, "rb") as file:
        key = hashlib.sha256(file.read()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(cache, "chronolith-peers", "kafka-" + key)
    if os.path.isdir(folder):
        return folder
    if not shutil.which("mvn"):
        raise NotRun("Maven is missing; sudo apt-get install -y --no-install-recommends maven")
    unfinished = folder + ".%d.unfinished" % os.getpid()
    os.makedirs(unfinished)
    command = ["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime",
               "-DoutputDirectory=" + unfinished]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=FETCH_WITHIN_S)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        why = done.stdout.decode("utf-8", "replace").strip().splitlines()[:1] if done else ["no answer"]
        raise NotRun("Maven cannot fetch Kafka: %s" % " ".join(why))
    try:
        os.rename(unfinished, folder)
    except OSError:
        # Another process was faster.
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def run(argv, **more):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if done.returncode != 0:
        raise SystemExit("%s: %s" % (argv[0], done.stdout.decode("utf-8", "replace")))


def certificates(folder):
    """An authority, certificates of broker and client by it, and an authority that nobody knows."""
    path = lambda name: os.path.join(folder, name)
    for name in ["ca", "other-ca"]:
        run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=" + name,
             "-keyout", path(name + ".key"), "-out", path(name + ".pem")])
    for name, extensions in [("server", "subjectAltName=IP:127.0.0.1,DNS:localhost"), ("client", "basicConstraints=CA:FALSE")]:
        run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=" + name,
             "-keyout", path(name + ".key"), "-out", path(name + ".csr")])
        with open(path("extensions"), "w") as out:
            out.write(extensions + "\n")
        run(["openssl", "x509", "-req", "-in", path(name + ".csr"), "-CA", path("ca.pem"), "-CAkey", path("ca.key"),
             "-CAcreateserial", "-days", "30", "-extfile", path("extensions"), "-out", path(name + ".pem")])
    with open(path("server-keystore.pem"), "w") as out:
        for name in ["server.key", "server.pem", "ca.pem"]:
            with open(path(name)) as part:
                out.write(part.read())
    for user, password in PASSWORDS.items():
        with open(path(user + ".password"), "w") as out:
            out.write(password + "\n")
    with open(path("wrong.password"), "w") as out:
        out.write("not-the-secret\n")
    with open(path("alice.token"), "w") as out:
        out.write(unsigned_token("alice") + "\n")


def unsigned_token(user):
    """A token without a signature, which brokers without an identity provider take."""
    encode = lambda part: base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
    now = int(time.time())
    return "%s.%s." % (encode({"alg": "none"}), encode({"sub": user, "iat": now, "exp": now + 36000}))


class Broker:
    def __init__(self, number, cluster, ports):
        self.number, self.cluster, self.ports = number, cluster, ports
        self.folder = os.path.join(cluster.folder, "broker-%d" % number)
        self.process = None
        os.makedirs(self.folder)
        self.properties = os.path.join(self.folder, "server.properties")
        with open(self.properties, "w") as out:
            out.write("".join("%s=%s\n" % pair for pair in self.settings().items()))
        scram = ["SCRAM-SHA-%d=[name=%s,password=%s]" % (bits, user, password)
                 for bits in (256, 512) for user, password in PASSWORDS.items()]
        users = [word for one in scram for word in ("--add-scram", one)]
        self.java(["kafka.tools.StorageTool", "format", "-t", cluster.identity, "-c", self.properties] + users)

    def settings(self):
        named = ",".join("%s://127.0.0.1:%d" % (name, self.ports[name]) for name in LISTENERS)
        files = self.cluster.folder
        replicas = min(3, self.cluster.count)
        plain = "".join(' user_%s="%s"' % pair for pair in PASSWORDS.items())
        settings = {
            "process.roles": "broker,controller",
            "node.id": self.number,
            "controller.quorum.voters": self.cluster.voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listeners": named,
            "listener.security.protocol.map": ",".join("%s:%s" % pair for pair in LISTENERS.items()),
            "log.dirs": os.path.join(self.folder, "data"),
            "num.partitions": 1,
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": 1,
            "num.network.threads": 2,
            "num.io.threads": 2,
            "log.cleaner.dedupe.buffer.size": 2 << 20,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": os.path.join(files, "server-keystore.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": os.path.join(files, "ca.pem"),
            "listener.name.mtls.ssl.client.auth": "required",
        }
        for listener in ("sasl", "sasltls"):
            prefix = "listener.name.%s." % listener
            modules = {
                "plain": LOGIN_MODULES + "plain.PlainLoginModule required%s;" % plain,
                "scram-sha-256": LOGIN_MODULES + "scram.ScramLoginModule required;",
                "scram-sha-512": LOGIN_MODULES + "scram.ScramLoginModule required;",
                "oauthbearer": LOGIN_MODULES + "oauthbearer.OAuthBearerLoginModule required"
                                               ' unsecuredLoginStringClaim_sub="broker";',
            }
            for mechanism, module in modules.items():
                settings[prefix + mechanism + ".sasl.jaas.config"] = module
        return settings

    def argv(self, arguments):
        return ["java", "-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                os.path.join(self.cluster.libraries, "*")] + arguments

    def java(self, arguments):
        run(self.argv(arguments), cwd=self.folder)

    def start(self):
        if self.process and self.process.poll() is None:
            return
        log = open(os.path.join(self.folder, "log"), "ab")
        argv = self.argv(["kafka.Kafka", self.properties])
        self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder)

    def wait(self):
        """Waits until the broker answers a request: its version, not what it stores."""
        for _ in range(START_WITHIN_S * 10):
            if self.process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.ports["PLAIN"]), timeout=1) as connection:
                    connection.sendall(bytes([0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255]))
                    if connection.recv(8)[4:] == bytes([0, 0, 0, 1]):
                        return
            except OSError:
                pass
            time.sleep(0.1)
        with open(os.path.join(self.folder, "log"), "rb") as log:
            tail = log.read().decode("utf-8", "replace")[-2000:]
        raise SystemExit("broker %d does not answer: %s" % (self.number, tail))

    def signal(self, number):
        self.process.send_signal(number)

    def pause(self):
        """Stops all threads: the signal alone is obeyed once one of them is scheduled, and others answer until then."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Cluster:
    def __init__(self, count):
        for program in ("java", "openssl"):
            if not shutil.which(program):
                raise NotRun("%s is missing" % program)
        self.libraries = libraries()
        self.count = count
        self.folder = tempfile.mkdtemp(prefix="chronolith-kafka-")
        self.brokers = []
        certificates(self.folder)
        self.identity = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A")
        ports = free_ports(count * len(LISTENERS))
        named = [dict(zip(LISTENERS, ports[i * len(LISTENERS):])) for i in range(count)]
        self.voters = ",".join("%d@127.0.0.1:%d" % (i + 1, one["CONTROLLER"]) for i, one in enumerate(named))
        self.brokers = [Broker(i + 1, self, one) for i, one in enumerate(named)]

    def start(self):
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            broker.wait()

    def print_settings(self):
        for name in LISTENERS:
            addresses = ",".join("127.0.0.1:%d" % broker.ports[name] for broker in self.brokers)
            print("%s=%s" % (name.lower(), addresses))
        print("files=%s" % self.folder)
        print("pids=%s" % ",".join(str(broker.process.pid) for broker in self.brokers))
        print("ready", flush=True)

    def obey(self, line):
        words = line.split()
        ports = [broker.ports["PLAIN"] for broker in self.brokers]
        requests = {
            "partitions": lambda topic, count: protocol.set_partition_count(ports[0], topic, int(count)),
            "delete": lambda topic: protocol.delete_topic(ports[0], topic),
            "set": lambda topic, name, value: protocol.set_config(ports[0], topic, name, value),
            "trim": lambda topic, partition, offset: protocol.delete_records(ports, topic, int(partition), int(offset)),
            "append": lambda topic, partition, value: protocol.append(ports, topic, int(partition), bytes.fromhex(value.strip("-"))),
        }
        if words[0] in requests:
            return requests[words[0]](*words[1:])
        broker = self.brokers[int(words[1]) - 1]
        if words[0] == "kill":
            broker.kill()
        elif words[0] == "start":
            broker.start()
            broker.wait()
        elif words[0] == "pause":
            broker.pause()
        elif words[0] == "resume":
            broker.signal(signal.SIGCONT)
        else:
            raise ValueError("no command %s" % words[0])

    def end(self):
        for broker in self.brokers:
            broker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def serve(count):
    cluster = Cluster(count)
    try:
        cluster.start()
        cluster.print_settings()
        for line in sys.stdin:
            try:
                cluster.obey(line)
                print("ok", flush=True)
            except (ValueError, IndexError, TypeError, OSError, struct.error) as error:
                print("failed: %s" % error, flush=True)
    finally:
        cluster.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["fetch", "serve"])
    parser.add_argument("--count", type=int, default=1)
    args = parser.parse_args()
    # Ends by the way of `finally`, which kills the brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        if args.command == "fetch":
            print(libraries())
        else:
            serve(args.count)
    except NotRun as why:
        print("not run: %s" % why, flush=True)
        raise SystemExit(3)


if __name__ == "__main__":
    main()
