//! Places where owners are found: `dns://NAME:PORT`, `file://PATH`, or `HOST:PORT,HOST:PORT`.

use std::path::PathBuf;
use std::str::FromStr;

const EXPECTED: &str = "expected dns://NAME:PORT, file:///PATH, or HOST:PORT,HOST:PORT";

/// Owners that a list or a file may have.
const OWNERS_MAX: usize = 10_000;

/// Place where owners are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnersAddress {
    /// Name that DNS resolves to the addresses of all owners.
    Dns {
        /// Name, for example of a headless service of Kubernetes.
        name: String,
        /// Port of all owners.
        port: u16,
    },
    /// Absolute path of a file with one address per line; `#` begins a comment.
    File(PathBuf),
    /// Addresses, each `HOST:PORT`.
    List(Vec<String>),
}

impl FromStr for OwnersAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<OwnersAddress, String> {
        if let Some(rest) = text.strip_prefix("dns://") {
            let (name, port) = split_port(rest).ok_or_else(|| format!("{EXPECTED}, found {text:?}"))?;
            return Ok(OwnersAddress::Dns { name: name.to_owned(), port });
        }
        if let Some(path) = text.strip_prefix("file://") {
            return match path.len() > 1 && path.starts_with('/') {
                true => Ok(OwnersAddress::File(PathBuf::from(path))),
                false => Err(format!("{EXPECTED}, found {text:?}")),
            };
        }
        let addresses: Vec<String> = text.split(',').map(|one| one.trim().to_owned()).collect();
        addresses.iter().try_for_each(|one| check_address(one))?;
        within_limit(addresses).map(OwnersAddress::List)
    }
}

impl OwnersAddress {
    /// Returns the addresses of the lines of a file, each once.
    ///
    /// # Errors
    /// The text names the line.
    pub fn parse_file(content: &str) -> Result<Vec<String>, String> {
        let mut addresses: Vec<String> = Vec::new();
        for (number, line) in (1..).zip(content.lines()) {
            let address = line.split_once('#').map_or(line, |(before, _)| before).trim();
            if address.is_empty() {
                continue;
            }
            check_address(address).map_err(|why| format!("line {number}: {why}"))?;
            addresses.push(address.to_owned());
        }
        addresses.sort_unstable();
        addresses.dedup();
        within_limit(addresses)
    }
}

fn within_limit(addresses: Vec<String>) -> Result<Vec<String>, String> {
    match addresses.len() {
        count if count > OWNERS_MAX => Err(format!("{count} owners, at most {OWNERS_MAX} are allowed")),
        _ => Ok(addresses),
    }
}

fn check_address(text: &str) -> Result<(), String> {
    match split_port(text) {
        Some(_) => Ok(()),
        None => Err(format!("expected HOST:PORT, found {text:?}")),
    }
}

/// Splits `HOST:PORT`; an address of IPv6 stands in brackets.
fn split_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let is_v6 = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    let is_name = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    (is_v6 || is_name).then_some((host, port))
}
