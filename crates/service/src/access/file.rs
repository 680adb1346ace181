//! The access file: principals with credentials, tenants, scopes, matchers and labels, as YAML.
//!
//! Invariants: the file has hashes of secrets, never a secret; an unknown key or a wrong value is an error
//! with line and column, and names no credential.
//! Not here: when it is read again (`control`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::Disk;
use chronolith_model::TenantId;
use chronolith_model::databases::{Privilege, User};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::directory::{ClaimsOfIssuer, Credentials, Directory, TokenHash};
use super::jwt::{Issuer, KeySource, discovery, key_files};
use super::passwords::BcryptHash;
use super::principal::{Principal, Tenants};
use super::scope::{Scope, Scopes};
use super::view::SeriesFilter;

/// Names of scopes in the file that stand for several scopes.
const GROUPS: [(&str, &[Scope]); 5] = [
    ("read", &[Scope::ReadMetrics, Scope::Federate, Scope::ReadRules]),
    ("write", &[Scope::WriteMetrics]),
    ("rules", &[Scope::ReadRules, Scope::WriteRules]),
    ("admin", &[Scope::Admin, Scope::DeleteMetrics, Scope::ReadStatus]),
    ("metrics", &[Scope::ReadStatus]),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    jwt: Vec<Spanned<IssuerEntry>>,
    principals: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    token_sha256: OneOrMany,
    user: Option<String>,
    password_bcrypt: Option<String>,
    certificate: Option<CertificateEntry>,
    jwt: Option<ClaimsEntry>,
    tenants: Option<OneOrMany>,
    scopes: Vec<String>,
    matchers: Option<String>,
    databases: Option<BTreeMap<String, DatabasePrivilege>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    expires: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateEntry {
    sans: Vec<String>,
}

/// Privilege on a database, as in statements of InfluxQL.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum DatabasePrivilege {
    Read,
    Write,
    All,
}

impl From<DatabasePrivilege> for Privilege {
    fn from(privilege: DatabasePrivilege) -> Privilege {
        match privilege {
            DatabasePrivilege::Read => Privilege::Read,
            DatabasePrivilege::Write => Privilege::Write,
            DatabasePrivilege::All => Privilege::All,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerEntry {
    issuer: String,
    audience: OneOrMany,
    /// Without it, keys are fetched from the issuer.
    jwks_file: Option<PathBuf>,
    leeway: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimsEntry {
    issuer: String,
    claims: BTreeMap<String, OneOrMany>,
}

/// One text, or a list of them.
#[derive(Deserialize, Default)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
    #[default]
    None,
}

impl OneOrMany {
    fn as_slice(&self) -> &[String] {
        match self {
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
            OneOrMany::None => &[],
        }
    }
}

/// Reads the text of an access file. Without `multitenancy`, an entry without tenants has the only one.
///
/// # Errors
/// Line, column, and the expected form.
pub fn parse(text: &str, multitenancy: bool) -> Result<Directory, String> {
    // A snippet would show hashes of the lines around the fault.
    let options = serde_saphyr::options! { with_snippet: false };
    let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    let mut directory = Directory::default();
    for entry in file.jwt {
        let place = entry.defined;
        let line = place.line();
        let column = place.column();
        let issuer = issuer_of(entry.value, directory.jwt().issuers.as_slice())
            .map_err(|why| format!("line {line}, column {column}: jwt: {why}"))?;
        directory.add_issuer(issuer);
    }
    for entry in file.principals {
        let place = entry.defined;
        let line = place.line();
        let column = place.column();
        let name = entry.value.name.clone();
        add(&mut directory, entry.value, multitenancy)
            .map_err(|why| format!("line {line}, column {column}: principal {name:?}: {why}"))?;
    }
    Ok(directory)
}

/// Reads the bytes of an access file, as [`parse`].
///
/// # Errors
/// As [`parse`], and for bytes that are not UTF-8.
pub(super) fn parse_bytes(bytes: &[u8], multitenancy: bool) -> Result<Directory, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    parse(text, multitenancy)
}

/// Checks an access file and the JWKS files that it names.
///
/// # Errors
/// Path, and the reason why the file cannot be read, or as [`parse`].
pub fn check_access_file(path: &Path, multitenancy: bool, disk: &dyn Disk) -> Result<(), String> {
    let read = disk.read(path).map_err(|error| error.to_string());
    let parsed = read.and_then(|bytes| parse_bytes(&bytes, multitenancy));
    let checked = parsed.and_then(|mut directory| {
        directory.resolve_key_files(path.parent());
        directory.jwt().key_files().try_for_each(|path| key_files::check(path, disk))
    });
    checked.map_err(|why| format!("access file {}: {why}", path.display()))
}

fn add(directory: &mut Directory, entry: Entry, multitenancy: bool) -> Result<(), String> {
    if entry.name.is_empty() {
        return Err("`name` is empty".to_owned());
    }
    let tenants = tenants_of(&entry, multitenancy)?;
    let scopes = scopes_of(&entry.scopes)?;
    let mut principal = Principal::new(&entry.name, tenants, scopes);
    if let Some(text) = &entry.matchers {
        let filter = SeriesFilter::parse(text).map_err(|why| format!("`matchers`: {why}"))?;
        principal = principal.with_filter(filter);
    }
    if let Some(databases) = &entry.databases {
        if databases.is_empty() {
            return Err("`databases` has no database".to_owned());
        }
        principal = principal.with_user(database_user(&entry.name, databases));
    }
    check_labels(&entry.labels)?;
    principal = principal.with_added_labels(entry.labels.clone());
    if let Some(text) = &entry.expires {
        let time: jiff::Timestamp =
            text.parse().map_err(|_| format!("`expires`: {text:?} is no time as 2027-01-31T00:00:00Z"))?;
        principal = principal.with_expiry(time.as_millisecond());
    }
    let credentials = credentials_of(entry)?;
    if let Some((issuer, _)) = &credentials.claims
        && !directory.jwt().issuers.iter().any(|known| known.name == *issuer)
    {
        return Err(format!("`jwt`: issuer {issuer:?} is not in the section `jwt` of the file"));
    }
    directory.add(principal, credentials)
}

/// Tolerated difference between clocks unless the file says otherwise, ms.
const LEEWAY_MS_DEFAULT: i64 = 60_000;
/// Longest tolerated difference between clocks, ms.
const LEEWAY_MS_MAX: i64 = 600_000;

fn issuer_of(entry: IssuerEntry, known: &[Issuer]) -> Result<Issuer, String> {
    let name = entry.issuer;
    if name.is_empty() || known.iter().any(|other| other.name == name) {
        return Err(format!("`issuer`: {name:?} is empty or listed twice"));
    }
    let audiences = entry.audience.as_slice().to_vec();
    if audiences.is_empty() || audiences.iter().any(String::is_empty) {
        return Err("`audience` is empty: the name of this server in tokens, or a list of names".to_owned());
    }
    let keys = match entry.jwks_file {
        Some(path) if path.as_os_str().is_empty() => return Err("`jwks_file` is empty".to_owned()),
        Some(path) => KeySource::File(path),
        None => {
            discovery::check_issuer(&name).map_err(|why| format!("`issuer`: {why}"))?;
            KeySource::Discovery
        }
    };
    let leeway_ms = match &entry.leeway {
        None => LEEWAY_MS_DEFAULT,
        Some(text) => text
            .parse::<jiff::SignedDuration>()
            .ok()
            .and_then(|leeway| i64::try_from(leeway.as_millis()).ok())
            .filter(|leeway_ms| (0..=LEEWAY_MS_MAX).contains(leeway_ms))
            .ok_or_else(|| format!("`leeway`: {text:?} is no duration from 0s to 10m"))?,
    };
    Ok(Issuer { name, audiences, keys, leeway_ms })
}

fn claims_of(entry: ClaimsEntry) -> Result<ClaimsOfIssuer, String> {
    let claims = entry.claims.into_iter().map(|(name, values)| (name, values.as_slice().to_vec()));
    let claims: BTreeMap<String, Vec<String>> = claims.collect();
    // An empty rule would make every user of the issuer this principal.
    if claims.is_empty() || claims.values().any(Vec::is_empty) {
        return Err("`jwt`: `claims` names no claim, or one without a value".to_owned());
    }
    Ok((entry.issuer, claims))
}

/// A user of InfluxDB's API with these privileges; its password is the principal's.
fn database_user(name: &str, databases: &BTreeMap<String, DatabasePrivilege>) -> User {
    let privileges = databases.iter().map(|(name, privilege)| (name.clone(), (*privilege).into()));
    User {
        name: name.to_owned(),
        password_hash: String::new(),
        is_admin: false,
        privileges: privileges.collect(),
    }
}

/// Bytes of all names and values of a principal's labels.
const LABELS_BYTES_MAX: usize = 4096;

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, value) in labels {
        if name.is_empty()
            || value.is_empty()
            || name.starts_with("__")
            || [name, value].iter().any(|text| text.contains('\0'))
        {
            return Err(format!(
                "`labels`: {name:?}: no part may be empty or have NUL, and no name begins with __"
            ));
        }
    }
    let bytes: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > LABELS_BYTES_MAX {
        return Err(format!("`labels` have {bytes} bytes, at most {LABELS_BYTES_MAX} are allowed"));
    }
    Ok(())
}

fn tenants_of(entry: &Entry, multitenancy: bool) -> Result<Tenants, String> {
    let names = match (&entry.tenants, multitenancy) {
        (Some(names), _) => names.as_slice(),
        (None, false) => return Ok(Tenants::Only([TenantId::anonymous()].into())),
        (None, true) => return Err("`tenants` is missing: a list of tenants, or \"*\" for all".to_owned()),
    };
    if names.iter().any(|name| name == "*") {
        return Ok(Tenants::All);
    }
    if names.is_empty() {
        return Err("`tenants` has no tenant".to_owned());
    }
    let tenants =
        names.iter().map(|name| TenantId::new(name).map_err(|error| format!("`tenants`: {name:?}: {error}")));
    Ok(Tenants::Only(tenants.collect::<Result<_, _>>()?))
}

fn scopes_of(names: &[String]) -> Result<Scopes, String> {
    let mut scopes = Vec::new();
    for name in names {
        let group = GROUPS.iter().find(|(group, _)| group == name).map(|(_, scopes)| *scopes);
        let one = Scope::ALL.iter().filter(|scope| scope.name() == name && **scope != Scope::Public);
        let found: Vec<Scope> = group.map_or_else(|| one.copied().collect(), <[Scope]>::to_vec);
        if found.is_empty() {
            let groups = GROUPS.map(|(group, _)| group).join(", ");
            let single = Scope::ALL.iter().filter(|scope| **scope != Scope::Public);
            let single: Vec<&str> = single.map(|scope| scope.name()).collect();
            return Err(format!("`scopes`: {name:?} is none of {groups}, {}", single.join(", ")));
        }
        scopes.extend(found);
    }
    if scopes.is_empty() {
        return Err("`scopes` has no scope".to_owned());
    }
    Ok(Scopes::of(scopes))
}

fn credentials_of(entry: Entry) -> Result<Credentials, String> {
    let hashes = entry.token_sha256.as_slice().iter();
    let tokens = hashes.map(|text| token_hash(text)).collect::<Option<Vec<TokenHash>>>();
    let tokens = tokens.ok_or("`token_sha256` is not 64 hexadecimal digits")?;
    let user = match (entry.user, entry.password_bcrypt) {
        (Some(user), Some(_)) if user.is_empty() || user.contains(':') => {
            return Err("`user` is empty or has a colon".to_owned());
        }
        (Some(user), Some(hash)) => {
            let hash = BcryptHash::parse(&hash).map_err(|why| format!("`password_bcrypt`: {why}"))?;
            Some((user, hash))
        }
        (None, None) => None,
        (Some(_), None) => return Err("`user` without `password_bcrypt`".to_owned()),
        (None, Some(_)) => return Err("`password_bcrypt` without `user`".to_owned()),
    };
    let sans = entry.certificate.map(|certificate| certificate.sans).unwrap_or_default();
    if sans.iter().any(String::is_empty) {
        return Err("`certificate`: a name in `sans` is empty".to_owned());
    }
    let claims = entry.jwt.map(claims_of).transpose()?;
    if tokens.is_empty() && user.is_none() && sans.is_empty() && claims.is_none() {
        let why = "no way to log in: `token_sha256`, `user` with `password_bcrypt`, `certificate` with \
                   `sans`, or `jwt` with `claims`";
        return Err(why.to_owned());
    }
    Ok(Credentials { tokens, user, sans, claims })
}

/// Reads 64 hexadecimal digits.
fn token_hash(text: &str) -> Option<TokenHash> {
    let digits = text.as_bytes();
    let mut hash = TokenHash::default();
    if digits.len() != 2 * hash.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests;
