//! Token that all nodes of a cluster have.
//!
//! Invariant: tokens are compared by their hashes, so that times of comparisons do not depend on the token.

use std::path::Path;

use axum::http::HeaderValue;
use chronolith_base::Disk;
use chronolith_service::access::directory::hash_of_token;

/// Characters of a token: fewer can be guessed, more are another file.
const TOKEN_CHARS: std::ops::RangeInclusive<usize> = 16..=4096;

const SCHEME: &str = "Bearer ";

/// Token of the nodes. It has no `Debug`: it is secret.
#[derive(Clone)]
pub(crate) struct NodeToken {
    hash: [u8; 32],
    /// Value of the header `Authorization`, which log lines do not show.
    header: HeaderValue,
}

impl NodeToken {
    /// Reads the token of a file, without spaces and line ends around it.
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
        NodeToken::of(bytes.trim_ascii()).ok_or_else(|| {
            failed(format!("expected {} or more visible ASCII characters in one line", TOKEN_CHARS.start()))
        })
    }

    fn of(bytes: &[u8]) -> Option<NodeToken> {
        let text = str::from_utf8(bytes).ok()?;
        if !TOKEN_CHARS.contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let mut header = HeaderValue::from_str(&format!("{SCHEME}{text}")).ok()?;
        header.set_sensitive(true);
        Some(NodeToken { hash: hash_of_token(text), header })
    }

    /// Value of the header `Authorization` of calls; it prints as `Sensitive`.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// Returns true if the value of a header `Authorization` has the token.
    pub(crate) fn is_in(&self, authorization: Option<&HeaderValue>) -> bool {
        let text = authorization.and_then(|value| value.to_str().ok());
        let token = text.and_then(|text| {
            let (scheme, token) = text.split_at_checked(SCHEME.len())?;
            scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
        });
        token.is_some_and(|token| hash_of_token(token.trim()) == self.hash)
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

    #[test]
    fn errors_name_the_file_and_not_its_content() {
        let expected = "expected 16 or more visible ASCII characters in one line";
        for (content, want) in [
            (b"short-secret".as_slice(), expected),
            (b"two words, both of them secret", expected),
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
