//! Address by which clients reach the server, and the prefix of its paths.

use std::sync::Arc;

use axum::http::Uri;

/// Prefix of all paths: nothing, or `/a/b` without a slash at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutePrefix(Arc<str>);

impl RoutePrefix {
    /// Reads a path. Slashes around it are left out, as in Prometheus; `/` is no prefix.
    ///
    /// # Errors
    /// If `text` is not the path of a URL, has empty, `.` or `..` parts, or a query.
    pub fn parse(text: &str) -> Result<RoutePrefix, String> {
        let inner = text.trim_matches('/');
        if inner.is_empty() {
            return Ok(RoutePrefix::default());
        }
        let path = format!("/{inner}");
        let is_path = path.parse::<Uri>().is_ok_and(|uri| uri.path() == path && uri.query().is_none());
        let is_clean = inner.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !is_path || !is_clean || path.contains(['\\', '%', '#']) {
            return Err(format!(
                "invalid prefix {text:?}, expected the path of a URL, for example /chronolith"
            ));
        }
        Ok(RoutePrefix(path.into()))
    }

    /// The prefix, empty or with a slash at its start.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the rest of `target`, a path with a query, below the prefix.
    pub(crate) fn rest_of<'a>(&self, target: &'a str) -> Option<&'a str> {
        target.strip_prefix(&*self.0).filter(|rest| rest.starts_with('/'))
    }
}

/// URL by which clients reach the server, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalUrl {
    text: String,
    path: RoutePrefix,
}

impl ExternalUrl {
    /// Reads a URL with scheme and host.
    ///
    /// # Errors
    /// If `text` is no URL of HTTP, has a user, a query or a fragment, or if its path is no [`RoutePrefix`].
    pub fn parse(text: &str) -> Result<ExternalUrl, String> {
        let invalid =
            || format!("invalid URL {text:?}, expected for example https://metrics.example/chronolith");
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(invalid());
        };
        // The message shows no password.
        if authority.as_str().contains('@') {
            return Err("invalid URL with a user, expected scheme, host and path alone".to_owned());
        }
        if uri.query().is_some() || text.contains('#') {
            return Err(invalid());
        }
        let path = RoutePrefix::parse(uri.path())?;
        let text = format!("{}://{authority}{}", uri.scheme_str().unwrap_or_default(), path.as_str());
        Ok(ExternalUrl { text, path })
    }

    /// The URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path of the URL.
    #[must_use]
    pub fn path(&self) -> &RoutePrefix {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_around_a_prefix_count_for_nothing() {
        for (text, want) in [
            ("", ""),
            ("/", ""),
            ("//", ""),
            ("a", "/a"),
            ("/a/", "/a"),
            ("/a/b", "/a/b"),
            ("/a-b.c", "/a-b.c"),
        ] {
            assert_eq!(RoutePrefix::parse(text).expect(text).as_str(), want, "{text}");
        }
        for text in ["/a//b", "/a/../b", "/./a", "/a?b", "/a#b", "/a b", "/a\\b", "/%61"] {
            let error = RoutePrefix::parse(text).expect_err(text);
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn an_external_url_is_scheme_host_and_path() {
        for (text, want, path) in [
            ("https://m.example", "https://m.example", ""),
            ("http://m.example:8080/", "http://m.example:8080", ""),
            ("https://m.example/a/b/", "https://m.example/a/b", "/a/b"),
        ] {
            let url = ExternalUrl::parse(text).expect(text);
            assert_eq!((url.as_str(), url.path().as_str()), (want, path), "{text}");
        }
        for text in
            ["", "m.example", "/a", "ftp://m.example", "https://m.example/?a=b", "https://m.example/#a"]
        {
            assert!(ExternalUrl::parse(text).is_err(), "{text}");
        }
        let error = ExternalUrl::parse("https://user:hunter2@m.example").expect_err("a user");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
