//! OpenID Connect Discovery 1.0: address and content of the document that names an issuer's key set.
//!
//! Invariants: keys come over HTTPS, and without TLS from a loopback address alone; a document of another
//! issuer is refused.
//! Not here: when keys are fetched (`providers`), requests (`server`).

use serde::Deserialize;
use url::{Host, Url};

/// Document of a provider; its other members are of no use here.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
}

/// Checks the name of an issuer whose keys are fetched.
///
/// # Errors
/// The expected form.
pub(in crate::access) fn check_issuer(issuer: &str) -> Result<(), String> {
    let is_valid = Url::parse(issuer)
        .is_ok_and(|url| is_allowed(&url, true) && url.query().is_none() && url.fragment().is_none());
    if is_valid {
        return Ok(());
    }
    let form = "without `jwks_file` it is the https:// URL of an OpenID Connect provider, without query, user and \
                password; http:// on loopback alone";
    Err(format!("{issuer:?}: {form}"))
}

/// Returns the address of the document of `issuer`.
pub(super) fn document_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.strip_suffix('/').unwrap_or(issuer))
}

/// Returns the address of the key set that a document names.
///
/// # Errors
/// No document, one of another issuer, or an address that is not allowed.
pub(super) fn keys_url(issuer: &str, document: &[u8]) -> Result<String, String> {
    let document: Document = serde_json::from_slice(document)
        .map_err(|error| format!("no OpenID configuration with `issuer` and `jwks_uri`: {error}"))?;
    if document.issuer != issuer {
        return Err(format!("`issuer` of the OpenID configuration is {:?}", document.issuer));
    }
    // A provider on another host must not name an address of this one.
    let is_loopback = issuer.starts_with("http://");
    match Url::parse(&document.jwks_uri) {
        Ok(url) if is_allowed(&url, is_loopback) => Ok(url.into()),
        _ => {
            Err(format!("`jwks_uri` of the OpenID configuration is no https:// URL: {:?}", document.jwks_uri))
        }
    }
}

/// Returns true if keys may be fetched from `url`; without TLS from a loopback address if `allows_loopback`.
fn is_allowed(url: &Url, allows_loopback: bool) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => return false,
    };
    let is_plain = url.scheme() == "http" && is_loopback && allows_loopback;
    url.username().is_empty() && url.password().is_none() && (url.scheme() == "https" || is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_an_address_with_tls_or_on_loopback() {
        let valid = [
            "https://login.example.com",
            "https://login.example.com/realms/a/",
            "https://10.0.0.1:8443",
            "http://localhost:8080",
            "http://127.0.0.1",
            "http://[::1]:1/a",
        ];
        for issuer in valid {
            assert_eq!(check_issuer(issuer), Ok(()), "{issuer}");
        }
        let invalid = [
            "",
            "i",
            "login.example.com",
            "http://login.example.com",
            "http://127.0.0.1.example.com",
            "http://localhost.example.com",
            "http://0.0.0.0",
            "https://",
            "https://u:p@login.example.com",
            "https://u@login.example.com",
            "https://login.example.com?a=b",
            "https://login.example.com#a",
            "file:///etc/passwd",
            "ftp://localhost",
        ];
        for issuer in invalid {
            assert!(check_issuer(issuer).is_err(), "{issuer}");
        }
    }

    #[test]
    fn the_address_of_a_document_has_one_slash() {
        let want = "https://a/b/.well-known/openid-configuration";
        assert_eq!(["https://a/b", "https://a/b/"].map(document_url), [want, want]);
    }

    #[track_caller]
    fn check(issuer: &str, document: &str, want: Result<&str, &str>) {
        match (keys_url(issuer, document.as_bytes()), want) {
            (Ok(url), Ok(want)) => assert_eq!(url, want),
            (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
            (got, _) => panic!("{document}: {got:?}"),
        }
    }

    #[test]
    fn a_document_is_of_its_issuer_and_names_keys_behind_tls() {
        let document =
            |issuer: &str, url: &str| format!(r#"{{"issuer":"{issuer}","jwks_uri":"{url}","x":[1]}}"#);
        let issuer = "https://a.example";
        check(issuer, &document(issuer, "https://keys.example/k"), Ok("https://keys.example/k"));
        for other in ["https://b.example", "https://a.example/", "http://a.example"] {
            check(
                issuer,
                &document(other, "https://a.example/k"),
                Err("`issuer` of the OpenID configuration"),
            );
        }
        for url in
            ["http://a.example/k", "http://127.0.0.1/k", "file:///k", "/k", "", "https://u:p@a.example"]
        {
            check(issuer, &document(issuer, url), Err("`jwks_uri` of the OpenID configuration"));
        }
        let local = "http://127.0.0.1:1";
        check(local, &document(local, "http://127.0.0.1:2/k"), Ok("http://127.0.0.1:2/k"));
        check(local, &document(local, "http://a.example/k"), Err("`jwks_uri`"));
        for text in
            ["", "{}", "[]", r#"{"issuer":"https://a.example"}"#, r#"{"issuer":1,"jwks_uri":"https://a/"}"#]
        {
            check(issuer, text, Err("no OpenID configuration"));
        }
    }
}
