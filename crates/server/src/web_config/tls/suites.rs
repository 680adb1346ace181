//! Versions, cipher suites and curves by the names that Go gives them.
//!
//! Invariants: a name of Go that the TLS library lacks is refused as such; any other name is unknown.

use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};
use serde_saphyr::Spanned;

use crate::web_config::position::fault_at;

/// Versions from the oldest; a version that the library lacks has no value.
static VERSIONS: [(&str, Option<&SupportedProtocolVersion>); 4] =
    [("TLS10", None), ("TLS11", None), ("TLS12", Some(&TLS12)), ("TLS13", Some(&TLS13))];

/// Suites that Go calls secure and the library lacks: CBC, and RSA as key exchange.
const MISSING_SUITES: [&str; 9] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

/// Curves of Go; P-521 is not one of the library.
const CURVES: [(&str, Option<NamedGroup>); 4] = [
    ("CurveP256", Some(NamedGroup::secp256r1)),
    ("CurveP384", Some(NamedGroup::secp384r1)),
    ("CurveP521", None),
    ("X25519", Some(NamedGroup::X25519)),
];

/// Reason why a name cannot be used.
pub(super) struct Fault {
    pub(super) text: String,
    /// True if Go does not know the name either.
    pub(super) is_unknown: bool,
}

impl Fault {
    fn unknown(name: &Spanned<String>, key: &str, known: &str) -> Fault {
        let text = fault_at(name, &format!("`{key}`: {:?} is none of {known}", name.value));
        Fault { text, is_unknown: true }
    }

    fn unsupported(name: &Spanned<String>, key: &str, known: &str) -> Fault {
        let text = fault_at(name, &format!("`{key}`: {} is not supported, only {known} are", name.value));
        Fault { text, is_unknown: false }
    }
}

/// Versions from `min` to `max`, by default from 1.2 to 1.3.
pub(super) fn versions(
    min: Option<&Spanned<String>>,
    max: Option<&Spanned<String>>,
) -> Result<Vec<&'static SupportedProtocolVersion>, Fault> {
    let supported_name = |(name, version): &(&'static str, Option<_>)| version.map(|_| *name);
    let known = || VERSIONS.iter().filter_map(supported_name).collect::<Vec<_>>().join(", ");
    let position = |key: &str, text: Option<&Spanned<String>>, default: usize| {
        let Some(text) = text else { return Ok(default) };
        let found = VERSIONS.iter().position(|(name, _)| *name == text.value);
        found.ok_or_else(|| Fault::unknown(text, key, &known()))
    };
    let first = position("min_version", min, 2)?;
    let last = position("max_version", max, 3)?;
    for (key, text, at) in [("min_version", min, first), ("max_version", max, last)] {
        if let (Some(text), Some((_, None))) = (text, VERSIONS.get(at)) {
            return Err(Fault::unsupported(text, key, &known()));
        }
    }
    match VERSIONS.get(first..=last) {
        Some(versions) if !versions.is_empty() => {
            Ok(versions.iter().filter_map(|(_, version)| *version).collect())
        }
        _ => {
            let text = "`min_version` is newer than `max_version`: no client could connect".to_owned();
            Err(Fault { text, is_unknown: false })
        }
    }
}

/// Algorithms with the suites and curves that the file lists, in its order. Suites of TLS 1.3 are always
/// among them, as in Go.
pub(super) fn provider(
    suites: Option<&[Spanned<String>]>,
    curves: Option<&[Spanned<String>]>,
) -> Result<CryptoProvider, Fault> {
    let mut provider = ring::default_provider();
    if let Some(names) = suites.filter(|names| !names.is_empty()) {
        let is_tls13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
        let mut chosen: Vec<_> = provider.cipher_suites.iter().copied().filter(is_tls13).collect();
        for name in names {
            let suite = suite(&provider.cipher_suites, name)?;
            if !chosen.contains(&suite) {
                chosen.push(suite);
            }
        }
        provider.cipher_suites = chosen;
    }
    if let Some(names) = curves.filter(|names| !names.is_empty()) {
        let groups = names.iter().map(|name| group(&provider.kx_groups, name));
        provider.kx_groups = groups.collect::<Result<_, _>>()?;
    }
    Ok(provider)
}

fn suite(known: &[SupportedCipherSuite], name: &Spanned<String>) -> Result<SupportedCipherSuite, Fault> {
    let name_of = |suite: &SupportedCipherSuite| go_name(*suite);
    if let Some(suite) = known.iter().find(|suite| name_of(suite) == name.value) {
        return Ok(*suite);
    }
    let known = known.iter().map(name_of).collect::<Vec<_>>().join(", ");
    Err(match MISSING_SUITES.contains(&name.value.as_str()) {
        true => Fault::unsupported(name, "cipher_suites", &known),
        false => Fault::unknown(name, "cipher_suites", &known),
    })
}

/// Name of a suite in Go: suites of TLS 1.3 have no "13" in it.
fn go_name(suite: SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or_default();
    name.replacen("TLS13_", "TLS_", 1)
}

fn group(
    known: &[&'static dyn SupportedKxGroup],
    name: &Spanned<String>,
) -> Result<&'static dyn SupportedKxGroup, Fault> {
    let supported_name = |(name, group): &(&'static str, Option<NamedGroup>)| group.map(|_| *name);
    let names = || CURVES.iter().filter_map(supported_name).collect::<Vec<_>>().join(", ");
    let Some((_, group)) = CURVES.iter().find(|(known, _)| *known == name.value) else {
        return Err(Fault::unknown(name, "curve_preferences", &names()));
    };
    let found = known.iter().find(|known| Some(known.name()) == *group);
    found.copied().ok_or_else(|| Fault::unsupported(name, "curve_preferences", &names()))
}
