//! The header `Authorization`: Basic, Bearer, `Token TOKEN` and `Token USER:PASSWORD`.
//!
//! Invariants: names of schemes have any case; two headers are none, since a proxy and the server could read
//! different ones.
//! Not here: principals (`login`), users of InfluxDB (`influx::credentials`).

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Credentials in the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Authorization {
    Bearer(String),
    /// `Token` without a colon.
    Token(String),
    /// Basic, or `Token` with a colon.
    Password {
        user: String,
        password: String,
    },
}

/// The header has a form that is not known, or there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

impl Authorization {
    /// Reads the header; `None` if there is none.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Authorization>, Unreadable> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Unreadable);
        }
        parse(value).map(Some).ok_or(Unreadable)
    }
}

fn parse(value: &HeaderValue) -> Option<Authorization> {
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let rest = rest.trim();
    let pair = |text: &str| {
        let (user, password) = text.split_once(':')?;
        Some(Authorization::Password { user: user.to_owned(), password: password.to_owned() })
    };
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(Authorization::Bearer(rest.to_owned())),
        "token" => pair(rest).or_else(|| Some(Authorization::Token(rest.to_owned()))),
        "basic" => pair(std::str::from_utf8(&STANDARD.decode(rest).ok()?).ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&'static str]) -> Result<Option<Authorization>, Unreadable> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
        }
        Authorization::of(&headers)
    }

    #[test]
    fn each_form_is_read_in_any_case() {
        let password = |user: &str, password: &str| Authorization::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        for (value, want) in [
            ("Basic YTpiOmM=", password("a", "b:c")),
            ("basic YTpiOmM=", password("a", "b:c")),
            ("Basic Og==", password("", "")),
            ("Token a:b:c", password("a", "b:c")),
            ("Token ab", Authorization::Token("ab".to_owned())),
            ("TOKEN  ab ", Authorization::Token("ab".to_owned())),
            ("Bearer a:b", Authorization::Bearer("a:b".to_owned())),
            ("bearer ab", Authorization::Bearer("ab".to_owned())),
        ] {
            assert_eq!(of(&[value]), Ok(Some(want)), "{value}");
        }
        assert_eq!(of(&[]), Ok(None));
    }

    #[test]
    fn another_form_and_a_second_header_are_no_credentials() {
        for value in ["", "Bearer", "Digest a:b", "Basic ???", "Basic YWI=", "Basic /w==", "a:b"] {
            assert_eq!(of(&[value]), Err(Unreadable), "{value}");
        }
        assert_eq!(of(&["Bearer a", "Bearer a"]), Err(Unreadable));
    }
}
