//! Verdicts over web configuration files, and secrets of a file that no error may show.

use std::path::Path;

use chronolith_base::{Disk as _, MemDisk};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

use super::*;

/// Files with verdicts, which `kits/web-config` gives to Prometheus.
const VERDICTS: &str = include_str!("tests/verdicts.txt");

/// A disk with the files that cases name.
fn disk() -> MemDisk {
    let key = KeyPair::generate().expect("key");
    let certificate =
        CertificateParams::new(["localhost".to_owned()]).expect("names").self_signed(&key).expect("signed");
    let ca_key = KeyPair::generate().expect("key");
    let mut ca = CertificateParams::new(Vec::new()).expect("no names");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("/etc")).expect("directory");
    for (name, text) in [
        ("server.crt", certificate.pem()),
        ("server.key", key.serialize_pem()),
        ("other.key", ca_key.serialize_pem()),
        ("ca.crt", ca.self_signed(&ca_key).expect("signed").pem()),
        ("empty.pem", String::new()),
        ("text.pem", "no certificate\n".to_owned()),
    ] {
        disk.write_atomic(&Path::new("/etc").join(name), text.as_bytes()).expect("written");
    }
    disk
}

fn check(disk: &MemDisk, yaml: &str) -> Result<(), String> {
    let path = Path::new("/etc/web.yml");
    let mut text = String::new();
    for line in yaml.lines() {
        let (before, file) = line.split_once('@').unwrap_or((line, ""));
        let inlined = match file {
            "" => line.to_owned(),
            _ => {
                let pem = disk.read(&Path::new("/etc").join(file)).expect("file of a case");
                format!("{before}{:?}", String::from_utf8(pem).expect("PEM"))
            }
        };
        text.push_str(&inlined);
        text.push('\n');
    }
    disk.write_atomic(path, text.as_bytes()).expect("written");
    check_web_config(path, disk)
}

/// A file that Prometheus takes must be taken here, except for named parts that the TLS library lacks.
#[test]
fn verdicts_over_files_are_those_of_prometheus() {
    let disk = disk();
    let cases: Vec<&str> = VERDICTS.split("\n## ").skip(1).collect();
    assert!(cases.len() >= 60, "{} cases", cases.len());
    for case in cases {
        let (head, yaml) = case.split_once('\n').unwrap_or((case, ""));
        let (verdict, name) = head.split_once(": ").expect(head);
        let found = check(&disk, yaml);
        match (verdict.split(' ').next(), found) {
            (Some("good"), Ok(())) => {}
            (Some("bad" | "differs"), Err(error)) => {
                let (_, want) = name.split_once(": ").expect(name);
                assert!(error.contains(want), "{name}\nfound: {error}");
            }
            (_, found) => panic!("{head}\nfound: {found:?}"),
        }
    }
}

/// A key that was pasted at the wrong place came back in the error, which is logged.
#[test]
fn errors_show_no_secret() {
    let disk = disk();
    for yaml in [
        "tls_server_config: SECRET",
        "tls_server_config:\n  key: [SECRET]",
        "tls_server_config:\n  cert_file: server.crt\n  key: SECRET",
        "tls_server_config:\n  cert: SECRET\n  key: SECRET",
        "tls_server_config:\n  key: \"SECRET\n",
        "basic_auth_users:\n  alice: SECRET",
        "basic_auth_users: SECRET",
        "basic_auth_users:\n  alice: [SECRET]",
        "basic_auth_users:\n  alice: SECRET\n  alice: SECRET",
    ] {
        let error = check(&disk, yaml).expect_err(yaml);
        assert!(!error.contains("SECRET"), "{yaml}: {error}");
    }
}

/// A value beyond ASCII was taken, and then left out of each response.
#[test]
fn headers_keep_values_of_any_text() {
    let headers = |value: &str| {
        let yaml = format!("http_server_config:\n  headers:\n    Content-Security-Policy: \"{value}\"\n");
        file::WebConfig::parse(&yaml, Path::new("/etc")).map(|config| config.headers().to_vec())
    };
    let found = headers("report-to é").expect("a valid file");
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].0.as_str(), found[0].1.as_bytes()),
        ("content-security-policy", "report-to é".as_bytes())
    );
    assert_eq!(headers("").expect("a valid file"), []);
    assert!(headers(r"a\x7f").expect_err("a control character").contains("control character"));
}

/// Paths in the file are relative to it, not to the working directory of the process.
#[test]
fn paths_are_relative_to_the_file() {
    let disk = disk();
    let error = check(&disk, "tls_server_config:\n  cert_file: a/b.crt\n  key_file: /k").expect_err("absent");
    assert!(error.contains("/etc/a/b.crt"), "{error}");
}
