//! Addresses on which a server listens: which of them other hosts reach, and advice when one cannot be had.
//! Not here: opening them (`chronolith-server`).

use std::io::ErrorKind;
use std::net::IpAddr;

use chronolith_base::Disk;
use chronolith_server::{CarbonProtocol, ServerOptions, asks_for_login};

/// Setting of the listener of the HTTP APIs.
const HTTP: &str = "http";

/// Returns the warning for listeners that are not on a loopback address and ask for no credentials; none if
/// there is none.
pub(crate) fn open_to_others(options: &ServerOptions, disk: &dyn Disk) -> Option<String> {
    let web_config = options.web.config_file.as_deref();
    let has_logins =
        options.service.access.file.is_some() || web_config.is_some_and(|path| asks_for_login(path, disk));
    let is_guarded = |setting: &str| has_logins && setting == HTTP;
    let open: Vec<String> = all(options)
        .filter(|(setting, address)| !is_loopback(address) && !is_guarded(setting))
        .map(|(setting, address)| format!("{setting} {address}"))
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
        return Some(format!("no authentication: every host that reaches {} can write", open.join(", ")));
    }
    Some(format!(
        "no authentication: every host that reaches {} can read, write and delete{influx}; \
         ask for credentials with --access.file or --web.config.file, or listen on 127.0.0.1",
        open.join(", ")
    ))
}

/// Settings with their addresses, `host:port`.
fn all(options: &ServerOptions) -> impl Iterator<Item = (&'static str, &str)> {
    let carbon = options.service.write.carbon.listeners.iter().map(|listener| {
        let setting = match listener.protocol {
            CarbonProtocol::Plaintext => "carbon.listen",
            CarbonProtocol::Pickle => "carbon.pickle-listen",
        };
        (setting, listener.listen.as_str())
    });
    let udp = options.service.influx.udp.iter().map(|listener| ("influx.udp", listener.listen.as_str()));
    std::iter::once((HTTP, options.listen.as_str())).chain(carbon).chain(udp)
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
