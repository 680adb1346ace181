//! Credentials that the tools send to a server: a token (`--token-file`, `--token`), or user and password in
//! the URL.
//!
//! Invariant: no message has a token or a password.
//! Not here: user and password of a URL, which the HTTP client sends (`client`).

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};

use crate::args::value;

/// Adds the arguments to a command that asks a server.
pub(crate) fn add_arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("token-file")
                .long("token-file")
                .value_name("FILE")
                .help("File with the token that is sent; a user and password may be in the URL instead"),
        )
        .arg(
            Arg::new("token")
                .long("token")
                .value_name("TOKEN")
                .conflicts_with("token-file")
                .help("Token that is sent; other users of the machine may see it, --token-file they do not"),
        )
}

/// Returns the header of the request, if there is a token.
///
/// # Errors
/// The file cannot be read, or the text is no token.
pub(crate) fn authorization(matches: &ArgMatches) -> anyhow::Result<Option<String>> {
    let of_file = value(matches, "token-file");
    let token = match of_file {
        Some(path) => Some(std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?),
        None => value(matches, "token").map(str::to_owned),
    };
    let Some(token) = token else { return Ok(None) };
    let token = token.trim();
    // Other bytes would be refused by the HTTP client with a message that has the header.
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    anyhow::ensure!(is_token, "{} has no token in one line", of_file.unwrap_or("--token"));
    Ok(Some(format!("Bearer {token}")))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the file of the token is a real one")]

    use super::*;

    fn parsed(arguments: &[&str]) -> Result<ArgMatches, clap::Error> {
        let all = std::iter::once("x").chain(arguments.iter().copied());
        add_arguments(Command::new("x")).try_get_matches_from(all)
    }

    #[test]
    fn a_token_comes_from_the_file_or_the_flag() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let path = path.to_str().unwrap();
        std::fs::write(path, " secret-1 \n").unwrap();
        let header = |arguments: &[&str]| authorization(&parsed(arguments).unwrap());
        assert_eq!(header(&["--token-file", path]).unwrap().as_deref(), Some("Bearer secret-1"));
        assert_eq!(header(&["--token", "secret-2"]).unwrap().as_deref(), Some("Bearer secret-2"));
        assert_eq!(header(&[]).unwrap(), None);
        assert!(parsed(&["--token", "a", "--token-file", path]).is_err());
        std::fs::write(path, "secret-3\nsecret-4\n").unwrap();
        let error = format!("{:#}", header(&["--token-file", path]).unwrap_err());
        assert!(error.contains(path) && !error.contains("secret"), "{error}");
        let error = format!("{:#}", header(&["--token", "sécret"]).unwrap_err());
        assert!(error.contains("--token") && !error.contains("cret"), "{error}");
        assert!(header(&["--token-file", "/nonexistent/file"]).is_err());
    }
}
