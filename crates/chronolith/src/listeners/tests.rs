//! Addresses that other hosts reach, and advice for each listener.

use std::collections::BTreeMap;
use std::path::Path;

use chronolith_base::MemDisk;
use clap::Command;

use super::*;
use crate::settings::{Sources, add_flags};

fn options(flags: &[&str]) -> ServerOptions {
    let all = ["serve"].iter().chain(flags);
    let matches = add_flags(Command::new("serve")).try_get_matches_from(all).unwrap();
    let sources = Sources { flags: &matches, environment: &BTreeMap::new(), disk: &MemDisk::new() };
    sources.resolve().unwrap().server
}

#[track_caller]
fn check(flags: &[&str], want: Option<&str>) {
    let found = open_to_others(&options(flags), &MemDisk::new());
    let part = want.map(|listeners| format!("every host that reaches {listeners} can read"));
    match (&found, part) {
        (Some(text), Some(part)) => assert!(text.contains(&part), "{text}"),
        (found, part) => assert!(found.is_none() && part.is_none(), "{found:?}"),
    }
}

/// `--http 0.0.0.0:9595` opened all data to the network without a word. One warning names each listener that
/// is not on a loopback address.
#[test]
fn a_listener_for_other_hosts_is_a_warning_that_names_it() {
    check(&[], None);
    for host in ["127.0.0.1", "127.8.9.1", "localhost", "LocalHost", "[::1]", "[::ffff:127.0.0.1]"] {
        check(&["--http", &format!("{host}:9595")], None);
        check(&["--carbon.listen", &format!("{host}:2003/tenant/prefix.")], None);
    }
    for host in [
        "0.0.0.0",
        "[::]",
        "10.1.2.3",
        "[2001:db8::1]",
        "[::ffff:10.0.0.1]",
        "db.example",
        "localhost.example",
    ] {
        let address = format!("{host}:9595");
        check(&["--http", &address], Some(&format!("http {address}")));
        check(&["--carbon.listen", &address], Some(&format!("carbon.listen {address}")));
        check(&["--carbon.pickle-listen", &address], Some(&format!("carbon.pickle-listen {address}")));
        check(&["--influx.udp", &format!("{address}/db")], Some(&format!("influx.udp {address}")));
    }
    let mixed = "127.0.0.1:2003,0.0.0.0:2013";
    check(
        &["--http", "0.0.0.0:1", "--carbon.listen", mixed],
        Some("http 0.0.0.0:1, carbon.listen 0.0.0.0:2013"),
    );
}

/// Carbon has no logins: a list of senders, or certificates of clients, restricts a listener.
#[test]
fn a_carbon_listener_is_open_without_a_list_of_senders_and_without_certificates_of_clients() {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("/etc")).unwrap();
    for name in ["a", "b", "c"] {
        disk.write_atomic(&Path::new("/etc").join(name), b"PEM").unwrap();
    }
    let tls = "tls_server_config: {cert_file: a, key_file: b, client_ca_file: c, client_auth_type: ";
    for (name, policy) in [("all.yml", "RequireAndVerifyClientCert"), ("some.yml", "VerifyClientCertIfGiven")]
    {
        disk.write_atomic(&Path::new("/etc").join(name), format!("{tls}{policy}}}\n").as_bytes()).unwrap();
    }
    for (flags, is_open) in [
        (&[][..], true),
        (&["--carbon.allow", "10.0.0.0/8"], false),
        (&["--carbon.allow", "10.0.0.0/8,0.0.0.0/0"], true),
        (&["--carbon.tls", "/etc/all.yml"], false),
        (&["--carbon.tls", "/etc/some.yml"], true),
        (&["--carbon.tls", "/etc/none.yml"], true),
    ] {
        let all = ["--access.file", "a.yml", "--carbon.listen", "0.0.0.0:2003"].iter().chain(flags);
        let options = options(&all.copied().collect::<Vec<_>>());
        let warning = open_to_others(&options, &disk);
        assert_eq!(warning.is_some(), is_open, "{flags:?}: {warning:?}");
        let named = warning.is_none_or(|text| text.contains("carbon.listen 0.0.0.0:2003 can write; list"));
        assert!(named, "{flags:?}");
        let listed = without_login(&options, &disk).unwrap();
        assert_eq!(listed.contains("every host"), is_open, "{listed}");
    }
    let local = options(&["--access.file", "a.yml", "--carbon.listen", "127.0.0.1:2003/team-a"]);
    let want = "listeners that ask for no login: carbon.listen 127.0.0.1:2003 (this machine)";
    assert_eq!(without_login(&local, &disk).as_deref(), Some(want));
    assert_eq!(without_login(&options(&["--http", "0.0.0.0:1"]), &disk), None);
}

/// A busy port of carbon was reported with the flag of the HTTP listener.
#[test]
fn advice_names_the_setting_of_the_listener() {
    let all = ["http", "carbon.listen", "carbon.pickle-listen", "influx.udp"];
    for kind in
        [ErrorKind::AddrInUse, ErrorKind::PermissionDenied, ErrorKind::AddrNotAvailable, ErrorKind::Other]
    {
        for setting in all {
            let advice = bind_advice(setting, kind);
            let named: Vec<&str> = all
                .into_iter()
                .filter(|other| advice.split([' ', ':']).any(|word| word == format!("--{other}")))
                .collect();
            assert_eq!(named, [setting], "{advice}");
        }
        assert!(bind_advice("carbon.listen", kind).contains("make run CARBON="));
        assert!(bind_advice("http", kind).contains("make run HTTP="));
    }
}
