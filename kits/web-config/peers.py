#!/usr/bin/env python3
"""Real clients over TLS: Prometheus writes and reads back, other clients ask.

    peers.py CHRONOLITH PROMETHEUS [PROMETHEUS ...]

Each Prometheus scrapes itself and sends by remote write three times: with a password, with a token, with a
client certificate. Another process of the same program has no samples, and reads each of the three by remote
read with the same login. The server's certificate is replaced meanwhile. promtool, curl by HTTP/1.1 and
HTTP/2, requests as Telegraf and Grafana send them, and Python clients (influxdb, influxdb-client,
prometheus-api-client, where they are installed) log in as they do elsewhere. Exit code 1 on a failure.
"""
import base64
import importlib.util
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from verdicts import free_port

# Password "fakepassword".
ALICE = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"
WAIT_SECONDS = 60


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj"]


def make_pair(folder, name, san):
    openssl(folder, "req", *CURVE, f"/CN={name}", "-keyout", f"{name}.key.new", "-out", f"{name}.csr")
    (folder / "san.cnf").write_text(f"subjectAltName={san}\nbasicConstraints=CA:FALSE\n")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "san.cnf", "-out", f"{name}.crt.new")
    for end in ("key", "crt"):
        (folder / f"{name}.{end}.new").rename(folder / f"{name}.{end}")


def prometheus(program, folder, name, config):
    port = free_port()
    (folder / f"{name}.yml").write_text(config.replace("OWN_PORT", str(port)))
    log = open(folder / f"{name}.log", "w")
    process = subprocess.Popen(
        [program, f"--config.file={folder}/{name}.yml", f"--storage.tsdb.path={folder}/{name}-data",
         f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    return process, port


class Site:
    """A server with TLS and three logins, and the files of its clients."""

    def __init__(self, chronolith, folder):
        self.chronolith, self.folder, self.processes = chronolith, folder, []
        openssl(folder, "req", *CURVE, "/CN=authority", "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.crt")
        make_pair(folder, "server", "DNS:localhost")
        make_pair(folder, "agent", "DNS:agent.example")
        made = subprocess.run([chronolith, "token", "new"], capture_output=True, text=True, check=True).stdout
        words = made.replace('"', " ").split()
        digest = next(word for word in words if len(word) == 64 and all(c in "0123456789abcdef" for c in word))
        self.token = next(word for word in words if len(word) >= 32 and word != digest)
        (folder / "token").write_text(self.token)
        (folder / "web.yml").write_text(
            "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  client_ca_file: ca.crt\n"
            f"  client_auth_type: VerifyClientCertIfGiven\nbasic_auth_users:\n  alice: {ALICE}\n")
        (folder / "access.yml").write_text(
            "principals:\n- name: by-certificate\n  certificate: {sans: [agent.example]}\n  scopes: [read, write]\n"
            f"- name: by-token\n  token_sha256: {digest}\n  scopes: [read, write, admin]\n")
        self.port = free_port()
        self.url = f"https://localhost:{self.port}"
        log = open(folder / "chronolith.log", "w")
        self.processes.append(subprocess.Popen(
            [chronolith, "serve", f"--data-dir={folder}/data", f"--http=127.0.0.1:{self.port}",
             f"--web.config.file={folder}/web.yml", f"--access.file={folder}/access.yml"], stdout=log, stderr=log))

    def curl(self, *arguments, path="/api/v1/query?query=up"):
        """Status with version, and body."""
        done = subprocess.run(["curl", "-s", "-g", "--cacert", self.folder / "ca.crt", "-w", "\n%{http_code} %{http_version}",
                               *arguments, self.url + path], capture_output=True, text=True)
        body, _, code = done.stdout.rpartition("\n")
        return code, body

    def call(self, path, headers, body=None):
        """Status and body of a request of urllib."""
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, context=context) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def logins(self):
        """Sections of a Prometheus configuration, by name of the login."""
        ca = f"ca_file: {self.folder}/ca.crt"
        agent = f"cert_file: {self.folder}/agent.crt, key_file: {self.folder}/agent.key"
        return {
            "password": f"  basic_auth: {{username: alice, password: fakepassword}}\n  tls_config: {{{ca}}}\n",
            "token": f"  authorization: {{credentials_file: {self.folder}/token}}\n  tls_config: {{{ca}}}\n",
            "certificate": f"  tls_config: {{{ca}, {agent}}}\n",
        }


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, found, want):
        is_right = found == want
        self.passed, self.failed = self.passed + is_right, self.failed + (not is_right)
        print(f"ok: {what}" if is_right else f"FAILED: {what}: {found!r:.300}, expected {want!r:.300}", flush=True)

    def wait(self, what, condition):
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            try:
                if condition():
                    return self.check(what, True, True)
            except OSError:
                pass
            time.sleep(0.5)
        return self.check(what, "not within a minute", True)


def check_curl(site, report):
    certificate = ["--cert", site.folder / "agent.crt", "--key", site.folder / "agent.key"]
    password = ["-u", "alice:fakepassword"]
    for what, arguments, want in [
        ("curl without a login", [], "401 2"),
        ("curl with a password", password, "200 2"),
        ("curl with a password over HTTP/1.1", [*password, "--http1.1"], "200 1.1"),
        ("curl with a wrong password", ["-u", "alice:wrong"], "401 2"),
        ("curl with a token", ["--oauth2-bearer", site.token], "200 2"),
        ("curl with a certificate", certificate, "200 2"),
        ("curl with TLS 1.2", [*password, "--tls-max", "1.2"], "200 2"),
        ("curl with TLS 1.1", [*password, "--tls-max", "1.1"], "000 0"),
    ]:
        report.check(what, site.curl(*arguments)[0], want)


def check_promtool(site, report):
    if not shutil.which("promtool"):
        print("not run: promtool is not there")
        return
    environment = {**os.environ, "SSL_CERT_FILE": str(site.folder / "ca.crt")}
    for what, login, want in [("a password", "alice:fakepassword", 0), ("a wrong password", "alice:wrong", 1),
                              ("a token as password", f"any:{site.token}", 0)]:
        url = site.url.replace("https://", f"https://{login}@")
        done = subprocess.run(["promtool", "query", "instant", url, "vector(1)"], env=environment, capture_output=True)
        report.check(f"promtool with {what}", done.returncode, want)


def check_requests(site, report):
    """Logins as Telegraf's outputs and Grafana's data sources send them."""
    basic = "Basic " + base64.b64encode(b"alice:fakepassword").decode()
    line = b"cpu,host=a usage=1"
    for what, path, headers, body, want in [
        ("Telegraf, outputs.influxdb: CREATE DATABASE at its start", "/query", {"Authorization": basic},
         b"q=CREATE+DATABASE+%22telegraf%22", 200),
        ("Telegraf, outputs.influxdb: username, password", "/write?db=telegraf", {"Authorization": basic}, line, 204),
        ("Telegraf, outputs.influxdb_v2: token", "/api/v2/write?bucket=telegraf&org=o&precision=ns",
         {"Authorization": f"Token {site.token}"}, line, 204),
        ("Telegraf, outputs.influxdb_v2: a wrong token", "/api/v2/write?bucket=telegraf&org=o",
         {"Authorization": "Token wrong"}, line, 401),
        ("Grafana, Prometheus: basic auth", "/api/v1/query", {"Authorization": basic}, b"query=up", 200),
        ("Grafana, Prometheus: header with a bearer token", "/api/v1/query",
         {"Authorization": f"Bearer {site.token}"}, b"query=up", 200),
        ("Grafana, InfluxQL: user and password in the URL",
         "/query?db=telegraf&epoch=ms&q=SHOW+MEASUREMENTS&u=alice&p=fakepassword", {}, None, 200),
        ("Grafana, InfluxQL: token", "/query?db=telegraf&q=SHOW+MEASUREMENTS",
         {"Authorization": f"Token {site.token}"}, None, 200),
        ("Grafana, Graphite: basic auth", "/render", {"Authorization": basic}, b"target=a.b&format=json&from=-1h", 200),
        ("Grafana, Graphite: no login", "/render", {}, b"target=a.b&format=json", 401),
    ]:
        status, text = site.call(path, headers, body)
        report.check(what, (status, text[:200] if status != want else ""), (want, ""))


def check_python(site, report):
    ca = str(site.folder / "ca.crt")
    os.environ["REQUESTS_CA_BUNDLE"] = ca
    have = {name: importlib.util.find_spec(name) is not None
            for name in ("influxdb", "influxdb_client", "prometheus_api_client")}
    for name, is_there in have.items():
        if not is_there:
            print(f"not run: the Python package {name} is not there")
    if have["influxdb"]:
        from influxdb import InfluxDBClient
        client = InfluxDBClient("localhost", site.port, "alice", "fakepassword", "python", ssl=True, verify_ssl=ca)
        client.create_database("python")
        client.write_points([{"measurement": "m", "fields": {"v": 2.5}}])
        report.check("influxdb: writes and reads", next(client.query("SELECT v FROM m").get_points())["v"], 2.5)
    if have["influxdb_client"]:
        from influxdb_client import InfluxDBClient as Client
        from influxdb_client.client.write_api import SYNCHRONOUS
        with Client(site.url, token=site.token, org="o", ssl_ca_cert=ca) as client:
            client.write_api(write_options=SYNCHRONOUS).write("python", record="v2 v=1.5")
        status, text = site.call("/query?db=python&q=SELECT+v+FROM+v2", {"Authorization": f"Bearer {site.token}"})
        report.check("influxdb_client: writes with a token", (status, "1.5" in text), (200, True))
    if have["prometheus_api_client"]:
        from prometheus_api_client import PrometheusConnect
        for what, arguments in [("a token", {"headers": {"Authorization": f"Bearer {site.token}"}}),
                                ("a password", {"auth": ("alice", "fakepassword")})]:
            found = PrometheusConnect(site.url, **arguments).custom_query("vector(4)")
            report.check(f"prometheus_api_client with {what}", found[0]["value"][1], "4")


def check_prometheus(site, report, program):
    folder = site.folder
    version = subprocess.run([program, "--version"], capture_output=True, text=True)
    name = " ".join((version.stdout + version.stderr).split()[:3])
    # Series of two programs must not meet.
    number = len(site.processes)
    writes = "".join(
        f"- url: {site.url}/api/v1/write\n{login}  write_relabel_configs: [{{target_label: login, replacement: {kind}-{number}}}]\n"
        for kind, login in site.logins().items())
    reads = "".join(f"- url: {site.url}/api/v1/read\n  read_recent: true\n  required_matchers: {{login: {kind}-{number}}}\n{login}"
                    for kind, login in site.logins().items())
    process, _ = prometheus(program, folder, f"writer-{number}", f"""
global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: self, static_configs: [{{targets: ["127.0.0.1:OWN_PORT"]}}]}}]
remote_write:
{writes}""")
    site.processes.append(process)
    process, reader = prometheus(program, folder, f"reader-{number}", f"remote_read:\n{reads}")
    site.processes.append(process)

    def read_back(query):
        address = f"http://127.0.0.1:{reader}/api/v1/query?query={urllib.parse.quote(query)}"
        with urllib.request.urlopen(address) as response:
            result = json.load(response)["data"]["result"]
        return float(result[0]["value"][1]) if result else 0

    def counted(kind):
        return read_back(f'count_over_time(up{{job="self",login="{kind}-{number}"}}[1h])')

    for kind in site.logins():
        report.wait(f"{name}: writes and reads with a {kind}", lambda kind=kind: counted(kind) > 2)
    before = {kind: counted(kind) for kind in site.logins()}
    make_pair(folder, "server", "DNS:localhost")
    time.sleep(2)
    for kind, count in before.items():
        report.wait(f"{name}: {kind}: goes on with the next server certificate", lambda: counted(kind) > count + 3)


def main():
    chronolith, *programs = sys.argv[1:]
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        site = Site(chronolith, pathlib.Path(name))
        report.wait("the server answers", lambda: site.curl(path="/-/ready")[0] == "200 2")
        try:
            for check in (check_curl, check_promtool, check_requests, check_python):
                check(site, report)
            for program in programs:
                check_prometheus(site, report, program)
        finally:
            for process in site.processes:
                process.kill()
                process.wait()
        if report.failed:
            print((site.folder / "chronolith.log").read_text()[-3000:])
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
