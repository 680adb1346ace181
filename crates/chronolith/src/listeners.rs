//! Addresses on which a server listens: which of them other hosts reach, and advice when one cannot be had.
//! Not here: opening them (`chronolith-server`).

use std::io::ErrorKind;
use std::net::IpAddr;

use chronolith_base::Disk;
use chronolith_server::{CarbonProtocol, ServerOptions, asks_for_certificate, asks_for_login};

/// Setting of the listener of the HTTP APIs.
const HTTP: &str = "http";

/// Returns the warning for listeners that are not on a loopback address and ask for no credentials; none if
/// there is none.
pub(crate) fn open_to_others(options: &ServerOptions, disk: &dyn Disk) -> Option<String> {
    let web_config = options.web.config_file.as_deref();
    let has_logins =
        options.service.access.file.is_some() || web_config.is_some_and(|path| asks_for_login(path, disk));
    let open: Vec<String> = all(options, has_logins, disk)
        .filter(|listener| !is_loopback(listener.address) && !listener.is_guarded)
        .map(|listener| format!("{} {}", listener.setting, listener.address))
        .collect();
    if open.is_empty() {
        return None;
    }
    let influx = if options.service.influx.auth_enabled {
        "; influx.auth-enabled asks for credentials on /write and /query alone"
    } else {
        ""
    };
    if has_logins {
        let has_carbon = open.iter().any(|listener| listener.starts_with("carbon."));
        let carbon = if has_carbon { "; list the senders with --carbon.allow" } else { "" };
        return Some(format!(
            "no authentication: every host that reaches {} can write{carbon}",
            open.join(", ")
        ));
    }
    Some(format!(
        "no authentication: every host that reaches {} can read, write and delete{influx}; \
         ask for credentials with --access.file or --web.config.file, or listen on 127.0.0.1",
        open.join(", ")
    ))
}

struct Listener<'a> {
    setting: &'static str,
    address: &'a str,
    /// True if not every host that reaches the address may use it.
    is_guarded: bool,
}

fn all<'a>(
    options: &'a ServerOptions,
    has_logins: bool,
    disk: &dyn Disk,
) -> impl Iterator<Item = Listener<'a>> {
    let carbon = &options.service.write.carbon;
    let is_restricted = carbon.allowed.as_ref().is_some_and(|ranges| !ranges.has_all_of_a_family())
        || carbon.tls_file.as_deref().is_some_and(|path| asks_for_certificate(path, disk));
    let of_carbon = carbon.listeners.iter().map(move |listener| {
        let setting = match listener.protocol {
            CarbonProtocol::Plaintext => "carbon.listen",
            CarbonProtocol::Pickle => "carbon.pickle-listen",
        };
        Listener { setting, address: &listener.listen, is_guarded: is_restricted }
    });
    let udp = options.service.influx.udp.iter().map(|listener| Listener {
        setting: "influx.udp",
        address: &listener.listen,
        is_guarded: false,
    });
    let http = Listener { setting: HTTP, address: &options.listen, is_guarded: has_logins };
    std::iter::once(http).chain(of_carbon).chain(udp)
}

/// Returns true if only this machine reaches `host:port`. A name other than `localhost` may be any address.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

/// Returns the listeners that write for a tenant without a login, with what restricts each, for the log of a
/// server with logins; none if there is none.
pub(crate) fn without_login(options: &ServerOptions, disk: &dyn Disk) -> Option<String> {
    let listed: Vec<String> = all(options, true, disk)
        .filter(|listener| listener.setting != HTTP)
        .map(|Listener { setting, address, is_guarded }| {
            let to = match (is_loopback(address), is_guarded) {
                (true, true) => "this machine, restricted by carbon.tls or carbon.allow",
                (true, false) => "this machine",
                (false, true) => "restricted by carbon.tls or carbon.allow",
                (false, false) => "every host that reaches it",
            };
            format!("{setting} {address} ({to})")
        })
        .collect();
    (!listed.is_empty()).then(|| format!("listeners that ask for no login: {}", listed.join(", ")))
}

/// Returns what an operator can do about a listener that cannot be opened.
pub(crate) fn bind_advice(setting: &str, kind: ErrorKind) -> String {
    let flag = format!("--{setting}");
    let variable = match setting {
        "http" => " (from the checkout: make run HTTP=127.0.0.1:9596)",
        "carbon.listen" => " (from the checkout: make run CARBON=127.0.0.1:2013, or CARBON= for no listener)",
        _ => "",
    };
    match kind {
        ErrorKind::AddrInUse => {
            format!("another process listens there: stop it, or choose another address with {flag}{variable}")
        }
        ErrorKind::PermissionDenied => {
            format!("ports below 1024 need privileges: choose another with {flag}{variable}")
        }
        ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address: choose another with {flag}{variable}")
        }
        _ => format!("choose another address with {flag}{variable}"),
    }
}

#[cfg(test)]
mod tests;
