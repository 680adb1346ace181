#!/usr/bin/env python3
"""Real clients over TLS: Prometheus writes and reads back, curl asks.

    peers.py CHRONOLITH PROMETHEUS

One Prometheus scrapes itself and sends by remote write with a password; another one has no samples, and
reads those by remote read with a client certificate as its login. curl sends both, by HTTP/1.1 and HTTP/2.
The server's certificate is replaced meanwhile. Exit code 1 on a failure.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time
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


def wait_for(what, condition):
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        try:
            if condition():
                print(f"ok: {what}")
                return 0
        except OSError:
            pass
        time.sleep(0.5)
    print(f"FAILED: {what}")
    return 1


def main():
    chronolith, program = sys.argv[1:3]
    processes = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        openssl(folder, "req", *CURVE, "/CN=authority", "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.crt")
        make_pair(folder, "server", "DNS:localhost")
        make_pair(folder, "reader", "DNS:reader.example")
        (folder / "web.yml").write_text(
            "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  client_ca_file: ca.crt\n"
            f"  client_auth_type: VerifyClientCertIfGiven\nbasic_auth_users:\n  alice: {ALICE}\n")
        (folder / "access.yml").write_text(
            "principals:\n- name: reader\n  certificate: {sans: [reader.example]}\n  scopes: [read]\n")
        port = free_port()
        url = f"https://localhost:{port}"
        log = open(folder / "chronolith.log", "w")
        processes.append(subprocess.Popen(
            [chronolith, "serve", f"--data-dir={folder}/data", f"--http=127.0.0.1:{port}",
             f"--web.config.file={folder}/web.yml", f"--access.file={folder}/access.yml"], stdout=log, stderr=log))

        def curl(*arguments, path="/api/v1/query?query=up"):
            done = subprocess.run(["curl", "-s", "-g", "--cacert", folder / "ca.crt", "-w", "\n%{http_code} %{http_version}",
                                   *arguments, url + path], capture_output=True, text=True)
            body, _, code = done.stdout.rpartition("\n")
            return code, body

        certificate = ["--cert", folder / "reader.crt", "--key", folder / "reader.key"]
        password = ["-u", "alice:fakepassword"]
        failed = wait_for("the server answers", lambda: curl(path="/-/ready")[0] == "200 2")
        for what, arguments, want in [
            ("curl without a login", [], "401 2"),
            ("curl with a password", password, "200 2"),
            ("curl with a password over HTTP/1.1", [*password, "--http1.1"], "200 1.1"),
            ("curl with a wrong password", ["-u", "alice:wrong"], "401 2"),
            ("curl with a certificate", certificate, "200 2"),
            ("curl with TLS 1.2", [*password, "--tls-max", "1.2"], "200 2"),
            ("curl with TLS 1.1", [*password, "--tls-max", "1.1"], "000 0"),
        ]:
            found = curl(*arguments)[0]
            failed += found != want
            print(f"{'ok' if found == want else 'FAILED'}: {what}: {found}")
        process, _ = prometheus(program, folder, "writer", f"""
global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: self, static_configs: [{{targets: ["127.0.0.1:OWN_PORT"]}}]}}]
remote_write:
- url: {url}/api/v1/write
  basic_auth: {{username: alice, password: fakepassword}}
  tls_config: {{ca_file: {folder}/ca.crt}}
""")
        processes.append(process)
        process, reader = prometheus(program, folder, "reader", f"""
remote_read:
- url: {url}/api/v1/read
  read_recent: true
  tls_config: {{ca_file: {folder}/ca.crt, cert_file: {folder}/reader.crt, key_file: {folder}/reader.key}}
""")
        processes.append(process)

        def read_back(query):
            address = f"http://127.0.0.1:{reader}/api/v1/query?query={urllib.parse.quote(query)}"
            with urllib.request.urlopen(address) as response:
                result = json.load(response)["data"]["result"]
            return float(result[0]["value"][1]) if result else 0

        failed += wait_for("Prometheus writes with a password", lambda: '"self"' in curl(*password)[1])
        failed += wait_for("Prometheus reads with a certificate", lambda: read_back('up{job="self"}') == 1)
        before = read_back('count_over_time(up{job="self"}[1h])')
        make_pair(folder, "server", "DNS:localhost")
        time.sleep(2)
        failed += wait_for("curl with the next server certificate", lambda: curl(*password)[0] == "200 2")
        failed += wait_for("Prometheus goes on", lambda: read_back('count_over_time(up{job="self"}[1h])') > before + 3)
        for process in processes:
            process.kill()
            process.wait()
        if failed:
            print((folder / "chronolith.log").read_text()[-3000:])
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
