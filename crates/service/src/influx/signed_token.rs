//! JSON web tokens signed with a shared secret (HS256, HS384, HS512), as InfluxDB 1.8 accepts them.
//!
//! Invariants: nothing of a token is read before its signature is verified, its algorithm aside.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::Value;

/// Returns true if the header of `token` names an algorithm with a shared secret. Nothing is verified.
pub fn is_signed_by_secret(token: &str) -> bool {
    let header = token.split_once('.').and_then(|(header, _)| URL_SAFE_NO_PAD.decode(header).ok());
    let header = header.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let algorithm = header.as_ref().and_then(|header| header.get("alg")?.as_str());
    algorithm.is_some_and(|name| algorithm_of(name).is_some())
}

/// Returns the user whom a token names.
///
/// # Errors
/// InfluxDB's text if the token is not valid at `now_s`.
pub fn user_of(token: &str, secret: &str, now_s: i64) -> Result<String, &'static str> {
    let signed = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let json = |text: &str| signed(text).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { return Err("signature is invalid") };
    let algorithm = json(header).ok_or("signature is invalid")?;
    let algorithm = algorithm.get("alg").and_then(Value::as_str).and_then(algorithm_of);
    let algorithm = algorithm.ok_or("unexpected signing method")?;
    let key = hmac::Key::new(algorithm, secret.as_bytes());
    let message = &token[..header.len() + 1 + claims.len()];
    let signature = signed(signature).ok_or("signature is invalid")?;
    hmac::verify(&key, message.as_bytes(), &signature).map_err(|_| "signature is invalid")?;
    let claims = json(claims).ok_or("problem authenticating token")?;
    let time = |name: &str| claims.get(name).and_then(Value::as_f64);
    let expires_s = time("exp").ok_or("token expiration required")?;
    if expires_s <= now_s as f64 {
        return Err("Token is expired");
    }
    if time("nbf").is_some_and(|from_s| from_s > now_s as f64) {
        return Err("Token is not valid yet");
    }
    let name = claims.get("username").and_then(Value::as_str).filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or("username in token must be a string")
}

fn algorithm_of(name: &str) -> Option<hmac::Algorithm> {
    match name {
        "HS256" => Some(hmac::HMAC_SHA256),
        "HS384" => Some(hmac::HMAC_SHA384),
        "HS512" => Some(hmac::HMAC_SHA512),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(algorithm: &str, claims: &str, secret: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let message = format!("{}.{}", encode(&format!("{{\"alg\":\"{algorithm}\"}}")), encode(claims));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, message.as_bytes()));
        format!("{message}.{signature}")
    }

    #[track_caller]
    fn check(token: &str, want: Result<&str, &'static str>) {
        assert_eq!(user_of(token, "secret", 1000), want.map(str::to_owned));
    }

    #[test]
    fn a_token_is_valid_with_the_secret_until_it_expires() {
        let claims = r#"{"username":"u","exp":1001}"#;
        check(&token("HS256", claims, "secret"), Ok("u"));
        check(&token("HS256", claims, "other"), Err("signature is invalid"));
        check(&token("none", claims, "secret"), Err("unexpected signing method"));
        check(&token("HS256", r#"{"username":"u","exp":1000}"#, "secret"), Err("Token is expired"));
        check(&token("HS256", r#"{"username":"u"}"#, "secret"), Err("token expiration required"));
        check(&token("HS256", r#"{"exp":2000}"#, "secret"), Err("username in token must be a string"));
        for garbage in ["", "a.b", "a.b.c", "..", "a.b.c.d"] {
            assert!(user_of(garbage, "secret", 0).is_err(), "{garbage}");
        }
    }
    #[test]
    fn a_token_of_a_public_key_is_none_of_a_secret() {
        for (algorithm, want) in [
            ("HS256", true),
            ("HS384", true),
            ("HS512", true),
            ("RS256", false),
            ("none", false),
            ("hs256", false),
        ] {
            assert_eq!(is_signed_by_secret(&token(algorithm, "{}", "s")), want, "{algorithm}");
        }
        for garbage in ["", ".", "eyJ.x.y", "clt_0123"] {
            assert!(!is_signed_by_secret(garbage), "{garbage}");
        }
    }
}
