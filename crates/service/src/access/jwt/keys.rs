//! Public keys of an issuer: a JSON Web Key Set (RFC 7517).
//!
//! Invariants: a key verifies the algorithms of its own type alone, so no text of a token turns a public key
//! into a shared secret. Keys of other types, for encryption or too short are left out.
//! Not here: the file of a key set (`key_files`), its provider (`providers`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;

use super::refusal::Refusal;

/// Keys of one issuer.
const KEY_COUNT_MAX: usize = 100;
/// Bytes of an RSA modulus: 2048 to 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Bytes of an RSA exponent.
const EXPONENT_BYTES_MAX: usize = 4;

/// Signature algorithm of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// Returns the algorithm with this name in a header; `None` for `none`, HS256 and all others.
    pub(super) fn parse(name: &str) -> Option<Algorithm> {
        Some(match name {
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "EdDSA" => Algorithm::EdDsa,
            _ => return None,
        })
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Algorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => None,
        }
    }
}

/// Public keys of one issuer.
#[derive(Default)]
pub(super) struct KeySet {
    keys: Vec<Key>,
}

struct Key {
    id: Option<String>,
    /// The only algorithm that the key may verify; `None`: all of its type.
    algorithm: Option<Algorithm>,
    material: Material,
}

enum Material {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An uncompressed point.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a key set in JSON.
    ///
    /// # Errors
    /// The text is no key set, has too many keys, or none that could verify a token.
    pub(super) fn parse(text: &[u8]) -> Result<KeySet, String> {
        let set: JwkSet = serde_json::from_slice(text).map_err(|error| format!("no JWK set: {error}"))?;
        let count = set.keys.len();
        if count > KEY_COUNT_MAX {
            return Err(format!("{count} keys, at most {KEY_COUNT_MAX} are allowed"));
        }
        let keys: Vec<Key> = set.keys.into_iter().filter_map(key_of).collect();
        if keys.is_empty() {
            return Err(format!(
                "none of {count} keys verifies signatures by RS, PS, ES256, ES384 or EdDSA (RSA: at least 2048 bits)"
            ));
        }
        Ok(KeySet { keys })
    }

    /// Number of keys.
    pub(super) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if there is a key with this id, or any key for a token without one.
    pub(super) fn has_key(&self, id: Option<&str>) -> bool {
        self.keys.iter().any(|key| id.is_none() || key.id.as_deref() == id)
    }

    /// Verifies the signature of `message`. A token without key id is compared with each key of the
    /// algorithm's type.
    ///
    /// # Errors
    /// [`Refusal::Key`] if no key fits, [`Refusal::Signature`].
    pub(super) fn verify(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Refusal> {
        let mut refusal = Refusal::Key;
        for key in &self.keys {
            let has_id = id.is_none() || key.id.as_deref() == id;
            if !has_id || key.algorithm.is_some_and(|only| only != algorithm) {
                continue;
            }
            match key.material.verify(algorithm, message, signature) {
                Some(true) => return Ok(()),
                Some(false) => refusal = Refusal::Signature,
                None => {}
            }
        }
        Err(refusal)
    }
}

impl Material {
    /// Returns true if the signature is right; `None` if keys of this type do not verify `algorithm`.
    fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> Option<bool> {
        let by = |verifier: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(verifier, key).verify(message, signature).is_ok()
        };
        match (self, algorithm) {
            (Material::Rsa(key), _) => Some(key.verify(algorithm.rsa()?, message, signature).is_ok()),
            (Material::P256(key), Algorithm::Es256) => Some(by(&signature::ECDSA_P256_SHA256_FIXED, key)),
            (Material::P384(key), Algorithm::Es384) => Some(by(&signature::ECDSA_P384_SHA384_FIXED, key)),
            (Material::Ed25519(key), Algorithm::EdDsa) => Some(by(&signature::ED25519, key)),
            _ => None,
        }
    }
}

/// Returns the key of an entry; `None` if it verifies no signature.
fn key_of(jwk: Jwk) -> Option<Key> {
    let is_for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig")
        && jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !is_for_signatures {
        return None;
    }
    let algorithm = match &jwk.alg {
        Some(name) => Some(Algorithm::parse(name)?),
        None => None,
    };
    let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => Material::Rsa(RsaPublicKeyComponents {
            n: unsigned(jwk.n.as_deref(), MODULUS_BYTES)?,
            e: unsigned(jwk.e.as_deref(), 1..=EXPONENT_BYTES_MAX)?,
        }),
        ("EC", Some("P-256")) => Material::P256(point(&jwk, 32)?),
        ("EC", Some("P-384")) => Material::P384(point(&jwk, 48)?),
        ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(jwk.x.as_deref(), 32)?),
        _ => return None,
    };
    Some(Key { id: jwk.kid, algorithm, material })
}

/// Reads a number without its leading zeros, which some issuers write.
fn unsigned(text: Option<&str>, length: std::ops::RangeInclusive<usize>) -> Option<Vec<u8>> {
    let digits = URL_SAFE_NO_PAD.decode(text?).ok()?;
    let number: Vec<u8> = digits.into_iter().skip_while(|digit| *digit == 0).collect();
    length.contains(&number.len()).then_some(number)
}

fn bytes(text: Option<&str>, length: usize) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?).ok().filter(|bytes| bytes.len() == length)
}

/// Returns the uncompressed point of a key on a curve.
fn point(jwk: &Jwk, length: usize) -> Option<Vec<u8>> {
    let x = bytes(jwk.x.as_deref(), length)?;
    let y = bytes(jwk.y.as_deref(), length)?;
    Some([&[4], x.as_slice(), y.as_slice()].concat())
}
