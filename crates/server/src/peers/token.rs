//! Token that all nodes of a cluster have. While it is replaced, nodes accept several ones and send the first
//! one.
//!
//! Invariant: tokens are compared by their hashes, so that times of comparisons do not depend on the token.

use std::path::Path;

use axum::http::HeaderValue;
use chronolith_base::Disk;
use chronolith_service::access::directory::hash_of_token;

/// Characters of a token: fewer can be guessed, more are another file.
const TOKEN_CHARS: std::ops::RangeInclusive<usize> = 16..=4096;

/// Tokens of a file: one of them is replaced by another one.
const TOKEN_COUNT_MAX: usize = 8;

const SCHEME: &str = "Bearer ";

/// Tokens of the nodes. It has no `Debug`: they are secret.
#[derive(Clone)]
pub(crate) struct NodeToken {
    /// Hashes of all accepted tokens; at least one.
    hashes: Vec<[u8; 32]>,
    /// The first token as value of the header `Authorization`, which log lines do not show.
    header: HeaderValue,
}

impl NodeToken {
    /// Reads the tokens of a file, one per line, without spaces around them. Empty lines are skipped.
    ///
    /// # Errors
    /// The text names the file and the expected form, and has no part of the content.
    pub(crate) fn read(path: &Path, disk: &dyn Disk) -> Result<NodeToken, String> {
        let failed = |why: String| format!("cluster.node-token-file: {}: {why}", path.display());
        let len = disk.open_read(path).and_then(|file| file.len());
        let len = len.map_err(|error| failed(error.to_string()))?;
        if len > *TOKEN_CHARS.end() as u64 {
            return Err(failed(format!("{len} bytes, at most {} are allowed", TOKEN_CHARS.end())));
        }
        let bytes = disk.read(path).map_err(|error| failed(error.to_string()))?;
        NodeToken::of(&bytes).ok_or_else(|| {
            failed(format!(
                "expected 1 to {TOKEN_COUNT_MAX} lines of {} or more visible ASCII characters",
                TOKEN_CHARS.start()
            ))
        })
    }

    fn of(bytes: &[u8]) -> Option<NodeToken> {
        let text = str::from_utf8(bytes).ok()?;
        let tokens: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let is_token = |token: &&str| {
            TOKEN_CHARS.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if tokens.len() > TOKEN_COUNT_MAX || !tokens.iter().all(is_token) {
            return None;
        }
        let mut header = HeaderValue::from_str(&format!("{SCHEME}{}", tokens.first()?)).ok()?;
        header.set_sensitive(true);
        Some(NodeToken { hashes: tokens.into_iter().map(hash_of_token).collect(), header })
    }

    /// Value of the header `Authorization` of calls; it prints as `Sensitive`.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// Returns true if the value of a header `Authorization` has one of the tokens.
    pub(crate) fn is_in(&self, authorization: Option<&HeaderValue>) -> bool {
        let text = authorization.and_then(|value| value.to_str().ok());
        let token = text.and_then(|text| {
            let (scheme, token) = text.split_at_checked(SCHEME.len())?;
            scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
        });
        token.is_some_and(|token| self.hashes.contains(&hash_of_token(token.trim())))
    }
}

#[cfg(test)]
mod tests {
    use chronolith_base::MemDisk;

    use super::*;

    const TOKEN: &str = "0123456789abcdef-node";
    const FILE: &str = "/secrets/token";

    fn read(content: &[u8]) -> Result<NodeToken, String> {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new("/secrets")).expect("a directory");
        let file = disk.create(Path::new(FILE));
        file.and_then(|file| file.write_at(content, 0)).expect("written");
        NodeToken::read(Path::new(FILE), &disk)
    }

    #[test]
    fn a_token_is_the_text_of_its_file() {
        let token = read(format!("  {TOKEN}\n").as_bytes()).expect("a token");
        let is_in = |text: &str| token.is_in(Some(&HeaderValue::from_str(text).expect("a value")));
        assert!(is_in(&format!("Bearer {TOKEN}")) && is_in(&format!("bearer  {TOKEN}")));
        for other in
            ["", "Bearer", "Bearer ", TOKEN, "Basic 0123456789abcdef-node", "Bearer 0123456789abcdef"]
        {
            assert!(!is_in(other), "{other}");
        }
        assert!(!token.is_in(None) && token.is_in(Some(&token.header())));
        assert!(!format!("{:?}", token.header()).contains(TOKEN));
    }

    /// Covers a change of the token in a cluster that runs: nodes get it one after the other.
    #[test]
    fn all_tokens_of_a_file_are_accepted_and_the_first_is_sent() {
        let other = "fedcba9876543210-node";
        let token = read(format!("{TOKEN}\r\n\n {other}\n").as_bytes()).expect("tokens");
        let value = |token: &str| HeaderValue::from_str(&format!("Bearer {token}")).expect("a value");
        assert!(token.is_in(Some(&value(TOKEN))) && token.is_in(Some(&value(other))));
        assert_eq!(token.header(), value(TOKEN));
        assert!(!token.is_in(Some(&value("0123456789abcdef-nod"))));
    }

    #[test]
    fn errors_name_the_file_and_not_its_content() {
        let expected = "expected 1 to 8 lines of 16 or more visible ASCII characters";
        let many = "0123456789abcdef\n".repeat(9);
        for (content, want) in [
            (b"short-secret".as_slice(), expected),
            (b"two words, both of them secret", expected),
            (b"", expected),
            (many.as_bytes(), expected),
            (b"secret-with-\xff-a-byte", expected),
            (&[b's'; 5000], "5000 bytes, at most 4096 are allowed"),
        ] {
            let error = read(content).err().expect("refused");
            assert_eq!(error, format!("cluster.node-token-file: {FILE}: {want}"));
        }
        let missing = NodeToken::read(Path::new("/none"), &MemDisk::new()).err().expect("missing");
        assert!(missing.starts_with("cluster.node-token-file: /none: "), "{missing}");
    }
}
