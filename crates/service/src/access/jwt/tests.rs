//! Tokens that are a login and tokens that are none, signed by keys of the test.
//!
//! `ring` makes no RSA keys, so that one is a file.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chronolith_base::Env;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaKeyPair};

use super::*;
use crate::access::control::{AccessControl, AccessOptions, LoginError};

mod discovered;

const ISSUER: &str = "https://login.example.com";
const NOW_S: i64 = 1_800_000_000;
const FILE: &str = "conf/access.yml";
const JWKS: &str = "conf/keys.json";
const RSA_KEY: &[u8] = include_bytes!("rsa_test_key.pk8");

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Keys of an issuer.
struct Signer {
    random: SystemRandom,
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
}

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let ecdsa = |curve| {
            let key = EcdsaKeyPair::generate_pkcs8(curve, &random).expect("a key");
            EcdsaKeyPair::from_pkcs8(curve, key.as_ref(), &random).expect("a key")
        };
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
        Signer {
            rsa: RsaKeyPair::from_pkcs8(RSA_KEY).expect("a key"),
            p256: ecdsa(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            p384: ecdsa(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            ed25519: Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).expect("a key"),
            random,
        }
    }

    fn modulus(&self) -> Vec<u8> {
        signature::RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public_key()).n
    }

    fn jwks(&self) -> String {
        let modulus = encoded(self.modulus());
        let curve = |id: &str, name: &str, key: &EcdsaKeyPair| {
            let point = &key.public_key().as_ref()[1..];
            let half = point.len() / 2;
            let x = encoded(&point[..half]);
            let y = encoded(&point[half..]);
            format!(r#"{{"kty":"EC","kid":"{id}","crv":"{name}","x":"{x}","y":"{y}"}}"#)
        };
        let ed25519 = encoded(self.ed25519.public_key());
        let keys = [
            format!(r#"{{"kty":"RSA","kid":"rsa","use":"sig","n":"{modulus}","e":"AQAB"}}"#),
            format!(r#"{{"kty":"RSA","kid":"rs512","alg":"RS512","n":"{modulus}","e":"AQAB"}}"#),
            format!(r#"{{"kty":"RSA","kid":"enc","use":"enc","n":"{modulus}","e":"AQAB"}}"#),
            format!(r#"{{"kty":"oct","kid":"oct","k":"{modulus}"}}"#),
            curve("p256", "P-256", &self.p256),
            curve("p384", "P-384", &self.p384),
            format!(r#"{{"kty":"OKP","kid":"ed","crv":"Ed25519","x":"{ed25519}"}}"#),
        ];
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }

    fn rsa(&self, padding: &'static dyn RsaEncoding, text: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.rsa.public().modulus_len()];
        self.rsa.sign(padding, &self.random, text, &mut out).expect("signed");
        out
    }

    fn signature(&self, algorithm: &str, text: &[u8]) -> Vec<u8> {
        let ecdsa = |key: &EcdsaKeyPair| key.sign(&self.random, text).expect("signed").as_ref().to_vec();
        match algorithm {
            "RS256" => self.rsa(&signature::RSA_PKCS1_SHA256, text),
            "RS384" => self.rsa(&signature::RSA_PKCS1_SHA384, text),
            "RS512" => self.rsa(&signature::RSA_PKCS1_SHA512, text),
            "PS256" => self.rsa(&signature::RSA_PSS_SHA256, text),
            "PS384" => self.rsa(&signature::RSA_PSS_SHA384, text),
            "PS512" => self.rsa(&signature::RSA_PSS_SHA512, text),
            "ES256" => ecdsa(&self.p256),
            "ES384" => ecdsa(&self.p384),
            "EdDSA" => self.ed25519.sign(text).as_ref().to_vec(),
            "HS256" => {
                let secret = hmac::Key::new(hmac::HMAC_SHA256, &self.modulus());
                hmac::sign(&secret, text).as_ref().to_vec()
            }
            _ => Vec::new(),
        }
    }

    fn token(&self, algorithm: &str, id: &str, claims: &str) -> String {
        let header = format!(r#"{{"alg":"{algorithm}","kid":"{id}","typ":"JWT"}}"#);
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let signature = encoded(self.signature(algorithm, signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

fn claims(changes: &[(&str, serde_json::Value)]) -> String {
    let mut claims = serde_json::json!({
        "iss": ISSUER, "aud": ["other", "chronolith"], "sub": "prom", "groups": ["dev", "ops"],
        "exp": NOW_S + 300, "nbf": NOW_S, "iat": NOW_S,
    });
    for (name, value) in changes {
        claims[*name] = value.clone();
    }
    claims.to_string()
}

/// Access control with an access file and a file of keys.
struct Server {
    control: AccessControl,
    env: Env,
}

impl Server {
    fn new(jwks: &str) -> Server {
        let text = format!(
            "jwt:\n- issuer: {ISSUER}\n  audience: chronolith\n  jwks_file: keys.json\n  leeway: 1m\nprincipals:\n\
             - name: prom\n  jwt: {{issuer: '{ISSUER}', claims: {{sub: prom, groups: [ops, dev]}}}}\n  scopes: [write]\n\
             - name: ops\n  jwt: {{issuer: '{ISSUER}', claims: {{groups: ops}}}}\n  scopes: [read]\n"
        );
        let (env, _, _) = Env::fake(NOW_S * 1000, 1);
        env.disk.create_dir_all(Path::new("conf")).expect("a folder");
        let options = AccessOptions { file: Some(FILE.into()) };
        let control = AccessControl::new(options, false, &env.rng);
        let server = Server { control, env };
        server.write(FILE, &text);
        server.write(JWKS, jwks);
        server.control.read(&server.env).expect("valid files");
        server
    }

    fn write(&self, path: &str, text: &str) {
        self.env.disk.write_atomic(Path::new(path), text.as_bytes()).expect("written");
    }

    fn login_at(&self, token: &str, now_s: i64) -> Result<String, LoginError> {
        let found = self.control.find_jwt(token, now_s * 1000)?;
        Ok(found.map_or_else(|| "no JWT".to_owned(), |principal| principal.name().to_owned()))
    }

    #[track_caller]
    fn check(&self, token: &str, want: Result<&str, Refusal>) {
        // Twice: a token that was right is remembered.
        for _ in 0..2 {
            let got = self.login_at(token, NOW_S);
            assert_eq!(got, want.map(str::to_owned).map_err(LoginError::Jwt), "{token}");
        }
    }
}

#[test]
fn each_algorithm_logs_in_with_a_key_of_its_type() {
    let signer = Signer::new();
    let server = Server::new(&signer.jwks());
    assert_eq!(server.control.jwt_key_count(), 5, "neither the one for encryption nor the secret");
    let rsa = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map(|name| (name, "rsa"));
    let others = [("ES256", "p256"), ("ES384", "p384"), ("EdDSA", "ed"), ("RS512", "rs512")];
    for (algorithm, id) in rsa.into_iter().chain(others) {
        server.check(&signer.token(algorithm, id, &claims(&[])), Ok("prom"));
        for other in ["rsa", "p256", "p384", "ed", "enc", "oct", "unknown"] {
            if other != id && !(id == "rs512" && other == "rsa") {
                server.check(&signer.token(algorithm, other, &claims(&[])), Err(Refusal::Key));
            }
        }
    }
    server.check(&signer.token("RS256", "rs512", &claims(&[])), Err(Refusal::Key));
}

#[test]
fn a_public_key_is_no_secret_and_none_is_no_algorithm() {
    let signer = Signer::new();
    let server = Server::new(&signer.jwks());
    for algorithm in ["HS256", "none", "None", "", "HS512", "ES512", "rs256"] {
        server.check(&signer.token(algorithm, "rsa", &claims(&[])), Err(Refusal::Algorithm));
    }
}

#[test]
fn claims_decide_on_time_audience_issuer_and_principal() {
    let signer = Signer::new();
    let server = Server::new(&signer.jwks());
    let check = |name: &str, value: serde_json::Value, want: Result<&str, Refusal>| {
        server.check(&signer.token("ES256", "p256", &claims(&[(name, value)])), want);
    };
    check("exp", (NOW_S - 59).into(), Ok("prom"));
    check("exp", (NOW_S - 60).into(), Err(Refusal::Expired));
    check("exp", serde_json::Value::Null, Err(Refusal::Malformed));
    check("exp", "never".into(), Err(Refusal::Malformed));
    for claim in ["nbf", "iat"] {
        check(claim, (NOW_S + 60).into(), Ok("prom"));
        check(claim, (NOW_S + 61).into(), Err(Refusal::NotYetValid));
    }
    check("aud", "chronolith".into(), Ok("prom"));
    check("aud", "chronolit".into(), Err(Refusal::Audience));
    check("aud", serde_json::json!([]), Err(Refusal::Audience));
    check("iss", "https://login.example.com/".into(), Err(Refusal::Issuer));
    check("iss", 1.into(), Err(Refusal::Issuer));
    check("sub", "other".into(), Ok("ops"));
    check("groups", "ops".into(), Ok("ops"));
    check("groups", serde_json::json!(["dev"]), Err(Refusal::Claims));
    let without_end = format!(r#"{{"iss":"{ISSUER}","aud":"chronolith","groups":"ops"}}"#);
    server.check(&signer.token("ES256", "p256", &without_end), Err(Refusal::Expired));
}

#[test]
fn claims_that_are_numbers_and_bools_match_their_text() {
    let claims = serde_json::json!({"level": 3, "verified": true, "roles": {"ops": 1}, "none": null});
    let claims = claims.as_object().expect("an object");
    assert!(has_value(claims, "level", "3") && has_value(claims, "verified", "true"));
    for (name, want) in
        [("level", "30"), ("verified", "false"), ("roles", "ops"), ("none", "null"), ("x", "")]
    {
        assert!(!has_value(claims, name, want), "{name} {want}");
    }
}

#[test]
fn a_remembered_token_ends_with_its_exp_and_with_its_key() {
    let signer = Signer::new();
    let server = Server::new(&signer.jwks());
    let token = signer.token("EdDSA", "ed", &claims(&[]));
    server.check(&token, Ok("prom"));
    assert_eq!(server.login_at(&token, NOW_S + 359), Ok("prom".to_owned()));
    assert_eq!(server.login_at(&token, NOW_S + 360), Err(LoginError::Jwt(Refusal::Expired)));
    server.write(JWKS, "{}");
    let error = server.control.read(&server.env).expect_err("a broken file");
    assert!(error.contains("JWKS file conf/keys.json: no JWK set"), "{error}");
    assert_eq!(server.control.read(&server.env), Ok(false), "it is reported once");
    server.check(&token, Ok("prom"));
    server.write(JWKS, &Signer::new().jwks());
    assert_eq!(server.control.read(&server.env), Ok(true));
    server.check(&token, Err(Refusal::Signature));
}

#[test]
fn a_changed_or_broken_token_is_no_login() {
    let signer = Signer::new();
    let server = Server::new(&signer.jwks());
    server.check("a.b", Ok("no JWT"));
    server.check("..", Err(Refusal::Malformed));
    server.check("eyJ!.e30.AA", Err(Refusal::Malformed));
    let long = format!("{}..", "a".repeat(token::TOKEN_BYTES_MAX));
    server.check(&long, Err(Refusal::TooLong));
    let critical = format!("{}.e30.", encoded(r#"{"alg":"EdDSA","crit":["b64"]}"#));
    server.check(&critical, Err(Refusal::Malformed));
    for (algorithm, id) in [("RS256", "rsa"), ("ES256", "p256"), ("EdDSA", "ed")] {
        let valid = signer.token(algorithm, id, &claims(&[]));
        server.check(&valid, Ok("prom"));
        for _ in 0..1000 {
            let mut bytes = valid.clone().into_bytes();
            let at = server.env.rng.below(bytes.len() as u64) as usize;
            match server.env.rng.below(3) {
                0 => bytes[at] = b"ABCabc019-_.="[server.env.rng.below(13) as usize],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b'A'),
            }
            let changed = String::from_utf8(bytes).expect("ASCII");
            if changed != valid {
                let got = server.login_at(&changed, NOW_S);
                assert!(got.as_deref() == Ok("no JWT") || got.is_err(), "{changed}");
            }
        }
    }
}
