//! Hosts and ports of addresses, as Go's package `net` splits them.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Host without brackets, and port.
struct HostPort<'a> {
    host: &'a str,
    port: &'a str,
}

/// Returns the address without its port; anything else is returned as it is.
pub(super) fn strip_port(address: &str) -> &str {
    split(address).map_or(address, |parts| parts.host)
}

/// Returns the first label of a host name and the port; IP addresses are returned as they are.
pub(super) fn strip_domain(address: &str) -> String {
    let parts = split(address).unwrap_or(HostPort { host: address, port: "" });
    if is_ip(parts.host) {
        return address.to_owned();
    }
    let host = parts.host.split('.').next().unwrap_or("");
    match parts.port {
        "" => host.to_owned(),
        port if host.contains(':') => format!("[{host}]:{port}"),
        port => format!("{host}:{port}"),
    }
}

fn split(address: &str) -> Option<HostPort<'_>> {
    let (before, port) = address.rsplit_once(':')?;
    let host = match before.strip_prefix('[') {
        // The first bracket closes just before the last colon.
        Some(inside) => inside.strip_suffix(']').filter(|host| !host.contains(['[', ']']))?,
        None if before.contains([':', '[', ']']) => return None,
        None => before,
    };
    (!port.contains(['[', ']'])).then_some(HostPort { host, port })
}

/// Returns true for an IP address; one of version 6 may have a zone.
fn is_ip(host: &str) -> bool {
    match host.split_once('%') {
        Some((address, zone)) => !zone.is_empty() && address.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv6Addr>().is_ok() || host.parse::<Ipv4Addr>().is_ok(),
    }
}
