//! Hosts by which clients may address the server (`--web.allowed-hosts`).
//!
//! Invariants: names are compared without case and without the dot at their end, addresses of IPv6 by their
//! value.
//! Not here: the check of requests (`host_check`).

use std::net::Ipv6Addr;

/// Port of a host without one.
const DEFAULT_PORT: u16 = 80;
/// Longest name in DNS.
const NAME_BYTES_MAX: usize = 253;

/// Hosts that requests may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHosts(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    host: HostPattern,
    /// `None` allows any port.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Exact(Host),
    /// `.example.org`: any name that ends with it.
    Below(String),
}

/// A host in one form of several that mean the same.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    /// A name, or an address of IPv4.
    Name(String),
    V6(Ipv6Addr),
}

impl AllowedHosts {
    /// Parses hosts that are separated by commas: `example.org`, `*.example.org`, `192.0.2.1`,
    /// `[2001:db8::1]`, each with a port or, for any port, without.
    ///
    /// # Errors
    /// Names an entry that is no host.
    pub fn parse(list: &str) -> Result<AllowedHosts, String> {
        let patterns = list.split(',').map(str::trim).map(|text| {
            parse_pattern(text).ok_or_else(|| {
                format!("invalid host {text:?}, expected NAME, *.NAME or ADDRESS, with or without :PORT")
            })
        });
        patterns.collect::<Result<_, _>>().map(AllowedHosts)
    }

    /// Returns true if `authority` (the value of a `Host` header) is one of these hosts.
    pub(crate) fn allows(&self, authority: &str) -> bool {
        let Some((host, port)) = split_port(authority) else { return false };
        let Some(host) = parse_host(host) else { return false };
        let port = port.unwrap_or(DEFAULT_PORT);
        self.0.iter().any(|pattern| {
            let matches_host = match (&pattern.host, &host) {
                (HostPattern::Exact(wanted), host) => wanted == host,
                (HostPattern::Below(suffix), Host::Name(name)) => {
                    name.strip_suffix(suffix.as_str()).is_some_and(|below| !below.is_empty())
                }
                (HostPattern::Below(_), Host::V6(_)) => false,
            };
            matches_host && pattern.port.is_none_or(|wanted| wanted == port)
        })
    }
}

fn parse_pattern(text: &str) -> Option<Pattern> {
    // An address of IPv6 may stand without brackets if it has no port.
    if let Ok(address) = text.parse() {
        return Some(Pattern { host: HostPattern::Exact(Host::V6(address)), port: None });
    }
    let (host, port) = split_port(text)?;
    let host = match host.strip_prefix("*.") {
        Some(rest) => match parse_host(rest)? {
            Host::Name(name) => HostPattern::Below(format!(".{name}")),
            Host::V6(_) => return None,
        },
        None => HostPattern::Exact(parse_host(host)?),
    };
    Some(Pattern { host, port })
}

/// Splits `host:port`; `None` if there is a port that is none.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let colon = authority.rfind(':').filter(|colon| !authority.get(*colon..).unwrap_or("").contains(']'));
    let Some(colon) = colon else { return Some((authority, None)) };
    let host = authority.get(..colon)?;
    let port = authority.get(colon + 1..)?;
    // `host:` is `host` (RFC 3986).
    if port.is_empty() {
        return Some((host, None));
    }
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    Some((host, Some(port.parse().ok().filter(|_| is_number)?)))
}

/// A host without port; `None` if it is none.
fn parse_host(text: &str) -> Option<Host> {
    if let Some(address) = text.strip_prefix('[') {
        return address.strip_suffix(']')?.parse().ok().map(Host::V6);
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_name = name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label);
    is_name.then(|| Host::Name(name.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests;
