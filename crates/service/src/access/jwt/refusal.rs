//! Reasons why a JWT is refused, and their counters.

use crate::counter::Counter;

/// Reason why a JWT is no login. It is for the log and for metrics, not for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The token has more bytes than allowed.
    #[error("the JWT is longer than 16 KiB")]
    TooLong,
    /// The token has no header, no claims or no signature that can be read.
    #[error("the JWT is malformed")]
    Malformed,
    /// The header names an algorithm that is not accepted, such as `none` or HS256.
    #[error("the algorithm of the JWT is not accepted")]
    Algorithm,
    /// No issuer of the access file has this name.
    #[error("the issuer of the JWT is not in the access file")]
    Issuer,
    /// The issuer has no key with the token's key id and algorithm.
    #[error("the issuer has no key with the key id and the algorithm of the JWT")]
    Key,
    /// The signature is not by the key.
    #[error("the signature of the JWT is wrong")]
    Signature,
    /// The time in `exp` is over, or there is none.
    #[error("the JWT has expired or has no exp")]
    Expired,
    /// The time in `nbf` or `iat` is in the future.
    #[error("nbf or iat of the JWT is in the future")]
    NotYetValid,
    /// The token is for another audience.
    #[error("the audience of the JWT is another one")]
    Audience,
    /// No principal has these claims.
    #[error("no principal matches the claims of the JWT")]
    Claims,
}

impl Refusal {
    /// Every reason with its name in metrics.
    pub const ALL: [(Refusal, &str); 10] = [
        (Refusal::TooLong, "too_long"),
        (Refusal::Malformed, "malformed"),
        (Refusal::Algorithm, "algorithm"),
        (Refusal::Issuer, "issuer"),
        (Refusal::Key, "key"),
        (Refusal::Signature, "signature"),
        (Refusal::Expired, "expired"),
        (Refusal::NotYetValid, "not_yet_valid"),
        (Refusal::Audience, "audience"),
        (Refusal::Claims, "claims"),
    ];
}

/// Counters of refused tokens by reason.
#[derive(Default)]
pub struct RefusalCounters([Counter; Refusal::ALL.len()]);

impl RefusalCounters {
    /// Counts a token that is refused for `refusal`.
    pub fn count(&self, refusal: Refusal) {
        let reasons = self.0.iter().zip(Refusal::ALL);
        reasons.filter(|(_, (reason, _))| *reason == refusal).for_each(|(counter, _)| counter.add(1));
    }

    /// Name and counter of each reason.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Counter)> {
        self.0.iter().zip(Refusal::ALL).map(|(counter, (_, name))| (name, counter))
    }
}
