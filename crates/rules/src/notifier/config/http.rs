//! Options of the HTTP client: TLS, login, headers.
//!
//! Invariants: a secret is shown by `Debug` as `<secret>`; at most one login is set; relative paths are
//! joined with the directory of the file.

use std::fmt;
use std::path::{Path, PathBuf};

use super::fields::{Fault, Fields, Text};

/// Headers that a file may not set, as in Prometheus.
const RESERVED_HEADERS: [&str; 18] = [
    "authorization",
    "host",
    "content-encoding",
    "content-length",
    "content-type",
    "user-agent",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "www-authenticate",
    "accept-encoding",
    "x-prometheus-remote-write-version",
    "x-prometheus-remote-read-version",
    "x-prometheus-scrape-timeout-seconds",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-content-sha256",
];

/// Reason for fields that need a secret manager.
const NO_SECRET_MANAGER: &str = "there is no secret manager";
/// Reason for fields of proxies.
const NO_PROXY: &str = "requests go to Alertmanagers directly";

/// A password, token or key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

impl Secret {
    /// The text itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// A value, or the file that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The value itself.
    Inline(Secret),
    /// A file, read again when it changes.
    File(PathBuf),
}

/// Login of requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Auth {
    /// Requests have no login.
    #[default]
    None,
    /// User and password.
    Basic {
        /// `None`: the empty name.
        user: Option<Source>,
        /// `None`: the empty password.
        password: Option<Source>,
    },
    /// `Authorization: SCHEME CREDENTIALS`.
    Token {
        /// For example `Bearer`.
        scheme: String,
        /// `None`: no credentials follow the scheme.
        credentials: Option<Source>,
    },
}

/// Versions of TLS that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Section `tls_config`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// Authorities in PEM; `None`: the authorities of the system.
    pub ca: Option<Source>,
    /// Certificate of the client in PEM; set together with `key`.
    pub cert: Option<Source>,
    /// Key of the certificate in PEM.
    pub key: Option<Source>,
    /// Name that the certificate of the server must have; `None`: the host of the URL.
    pub server_name: Option<String>,
    /// True if the certificate of the server is not verified.
    pub insecure_skip_verify: bool,
    /// Lowest version.
    pub min_version: Option<TlsVersion>,
    /// Highest version.
    pub max_version: Option<TlsVersion>,
}

/// A header of each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Name, as written.
    pub name: String,
    /// Values, each a header line of its own.
    pub values: Vec<HeaderValue>,
}

/// Value of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValue {
    /// A value that may be shown.
    Plain(String),
    /// A value that may not, or that a file has.
    Hidden(Source),
}

/// Options of requests to the Alertmanagers of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpOptions {
    /// TLS, for `https`.
    pub tls: TlsOptions,
    /// Login.
    pub auth: Auth,
    /// Headers.
    pub headers: Vec<Header>,
    /// True if HTTP/2 is offered by ALPN.
    pub http2: bool,
}

/// Takes the options from the fields of an entry.
pub(super) fn read(fields: &mut Fields, dir: &Path) -> Result<HttpOptions, Fault> {
    for name in ["proxy_url", "no_proxy", "proxy_from_environment", "proxy_connect_header"] {
        fields.refuse(name, NO_PROXY)?;
    }
    fields.refuse("oauth2", "use `authorization`")?;
    fields.refuse("sigv4", "use `authorization` or `basic_auth`")?;
    if let Some(position) = fields.position_of("follow_redirects")
        && fields.switch("follow_redirects")? == Some(true)
    {
        let message = "`follow_redirects` is not supported: redirects are failed requests";
        return Err(Fault::new(position, message));
    }
    Ok(HttpOptions {
        tls: tls(fields, dir)?,
        auth: auth(fields, dir)?,
        headers: headers(fields, dir)?,
        http2: fields.switch("enable_http2")?.unwrap_or(true),
    })
}

/// Takes `NAME` or `NAME_file`; `NAME_ref` is refused.
fn source(fields: &mut Fields, name: &str, dir: &Path) -> Result<Option<Source>, Fault> {
    fields.refuse(&format!("{name}_ref"), NO_SECRET_MANAGER)?;
    let file_name = format!("{name}_file");
    let inline = fields.filled_text(name)?;
    let file = fields.filled_text(&file_name)?;
    match (inline, file) {
        (Some(_), Some(file)) => {
            Err(Fault::new(file.position, format!("both `{name}` and `{file_name}` are set")))
        }
        (Some(inline), None) => Ok(Some(Source::Inline(Secret(inline.text)))),
        (None, Some(file)) => Ok(Some(Source::File(dir.join(file.text)))),
        (None, None) => Ok(None),
    }
}

fn auth(fields: &mut Fields, dir: &Path) -> Result<Auth, Fault> {
    let mut found = None;
    let mut set = |auth: Auth, position| match found.replace(auth) {
        None => Ok(()),
        Some(_) => {
            let message = "more than one of `basic_auth`, `authorization`, `bearer_token` is set";
            Err(Fault::new(position, message))
        }
    };
    if let Some(field) = fields.take("basic_auth") {
        let mut section = Fields::of(&field.value, "basic_auth")?;
        let user = source(&mut section, "username", dir)?;
        let password = source(&mut section, "password", dir)?;
        section.end()?;
        set(Auth::Basic { user, password }, field.position)?;
    }
    if let Some(field) = fields.take("authorization") {
        let mut section = Fields::of(&field.value, "authorization")?;
        let scheme = section.text("type")?.map(|scheme| scheme.text.trim().to_owned());
        let scheme = scheme.filter(|scheme| !scheme.is_empty()).unwrap_or_else(|| "Bearer".to_owned());
        if scheme.eq_ignore_ascii_case("basic") {
            let message = "`type` of `authorization` is basic: use `basic_auth`";
            return Err(Fault::new(field.position, message));
        }
        let credentials = source(&mut section, "credentials", dir)?;
        section.end()?;
        set(Auth::Token { scheme, credentials }, field.position)?;
    }
    let position = fields.position_of("bearer_token").or_else(|| fields.position_of("bearer_token_file"));
    if let (Some(credentials), Some(position)) = (source(fields, "bearer_token", dir)?, position) {
        set(Auth::Token { scheme: "Bearer".to_owned(), credentials: Some(credentials) }, position)?;
    }
    Ok(found.unwrap_or_default())
}

fn tls(fields: &mut Fields, dir: &Path) -> Result<TlsOptions, Fault> {
    let Some(field) = fields.take("tls_config") else { return Ok(TlsOptions::default()) };
    let mut section = Fields::of(&field.value, "tls_config")?;
    let options = TlsOptions {
        ca: source(&mut section, "ca", dir)?,
        cert: source(&mut section, "cert", dir)?,
        key: source(&mut section, "key", dir)?,
        server_name: section.filled_text("server_name")?.map(|name| name.text),
        insecure_skip_verify: section.switch("insecure_skip_verify")?.unwrap_or(false),
        min_version: version(section.filled_text("min_version")?)?,
        max_version: version(section.filled_text("max_version")?)?,
    };
    section.end()?;
    if options.cert.is_some() != options.key.is_some() {
        return Err(Fault::new(field.position, "`tls_config` has one of certificate and key alone"));
    }
    if options.min_version.zip(options.max_version).is_some_and(|(min, max)| min > max) {
        return Err(Fault::new(field.position, "`min_version` is above `max_version`"));
    }
    Ok(options)
}

fn version(name: Option<Text>) -> Result<Option<TlsVersion>, Fault> {
    let Some(Text { text, position }) = name else { return Ok(None) };
    match text.as_str() {
        "TLS12" => Ok(Some(TlsVersion::Tls12)),
        "TLS13" => Ok(Some(TlsVersion::Tls13)),
        "TLS10" | "TLS11" => {
            Err(Fault::new(position, format!("{text} is not supported: TLS12 and TLS13 are")))
        }
        _ => Err(Fault::new(position, format!("unknown TLS version: {text}"))),
    }
}

fn headers(fields: &mut Fields, dir: &Path) -> Result<Vec<Header>, Fault> {
    let Some(field) = fields.take("http_headers") else { return Ok(Vec::new()) };
    let mut headers = Vec::new();
    for entry in Fields::of(&field.value, "http_headers")?.into_all() {
        let name = entry.name;
        if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(Fault::new(entry.position, format!("setting header {name:?} is not allowed")));
        }
        let mut section = Fields::of(&entry.value, &format!("http_headers.{name}"))?;
        let plain = |text: Text| HeaderValue::Plain(text.text);
        let secret = |text: Text| HeaderValue::Hidden(Source::Inline(Secret(text.text)));
        let file = |text: Text| HeaderValue::Hidden(Source::File(dir.join(text.text)));
        let mut values: Vec<HeaderValue> = Vec::new();
        values.extend(section.texts("values")?.into_iter().flatten().map(plain));
        values.extend(section.texts("secrets")?.into_iter().flatten().map(secret));
        values.extend(section.texts("files")?.into_iter().flatten().map(file));
        section.end()?;
        headers.push(Header { name, values });
    }
    Ok(headers)
}
