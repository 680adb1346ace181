//! Files of namespaces: `rules/configured/TENANT/NAMESPACE.yml` below the data directory, the namespace
//! percent-encoded where its name is no file name.
//!
//! Invariants: a file is replaced as a whole; two namespaces have two files, and each file names one.
//! Not here: content of the files (`configured`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_base::disk::make_dir;
use chronolith_model::TenantId;

use super::error::ConfigureError;

/// Directory of the files of all tenants.
const DIR: [&str; 2] = ["rules", "configured"];
/// End of the name of a file.
const SUFFIX: &str = ".yml";
/// Bytes of an encoded name: a file name has at most 255, and a temporary file four more than its own.
const ENCODED_NAME_BYTES_MAX: usize = 240;

/// Files below a data directory.
pub(super) struct NamespaceFiles {
    env: Env,
    dir: PathBuf,
}

impl NamespaceFiles {
    pub(super) fn new(env: Env, data_dir: &Path) -> NamespaceFiles {
        NamespaceFiles { env, dir: DIR.iter().fold(data_dir.to_owned(), |dir, part| dir.join(part)) }
    }

    /// Path of the file of a namespace.
    pub(super) fn path(&self, tenant: &TenantId, namespace: &str) -> PathBuf {
        self.tenant_dir(tenant).join(format!("{}{SUFFIX}", encoded(namespace)))
    }

    fn tenant_dir(&self, tenant: &TenantId) -> PathBuf {
        self.dir.join(tenant.as_str())
    }

    /// Tenants that have a directory.
    pub(super) fn tenants(&self) -> Vec<TenantId> {
        self.names(&self.dir).iter().filter_map(|name| TenantId::new(name).ok()).collect()
    }

    /// Namespaces of a tenant that have a file. Temporary and foreign files are left out.
    pub(super) fn namespaces(&self, tenant: &TenantId) -> Vec<String> {
        let names = self.names(&self.tenant_dir(tenant));
        names.iter().filter_map(|name| decoded(name.strip_suffix(SUFFIX)?)).collect()
    }

    fn names(&self, dir: &Path) -> Vec<String> {
        match self.env.disk.list(dir) {
            Ok(entries) => entries.into_iter().map(|entry| entry.name).collect(),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::error!(dir = %dir.display(), %error, "configured rules cannot be listed");
                }
                Vec::new()
            }
        }
    }

    pub(super) fn read(&self, tenant: &TenantId, namespace: &str) -> io::Result<Vec<u8>> {
        self.env.disk.read(&self.path(tenant, namespace))
    }

    /// Replaces the file of a namespace, durably.
    pub(super) fn write(&self, tenant: &TenantId, namespace: &str, bytes: &[u8]) -> io::Result<()> {
        make_dir(&*self.env.disk, &self.tenant_dir(tenant))?;
        self.env.disk.write_atomic(&self.path(tenant, namespace), bytes)
    }

    /// Removes the file of a namespace, durably.
    pub(super) fn remove(&self, tenant: &TenantId, namespace: &str) -> io::Result<()> {
        unless_missing(self.env.disk.remove_file(&self.path(tenant, namespace)))?;
        self.env.disk.sync_dir(&self.tenant_dir(tenant))
    }

    /// Removes all files of a tenant, durably.
    pub(super) fn remove_tenant(&self, tenant: &TenantId) -> io::Result<()> {
        let dir = self.tenant_dir(tenant);
        if !self.env.disk.exists(&dir) {
            return Ok(());
        }
        unless_missing(self.env.disk.remove_dir_all(&dir))?;
        self.env.disk.sync_dir(&self.dir)
    }
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Checks that a namespace can have a file.
pub(super) fn check_name(namespace: &str) -> Result<(), ConfigureError> {
    if namespace.is_empty() {
        return Err(ConfigureError::Invalid("a namespace must be provided in the request".to_owned()));
    }
    ConfigureError::check_limit(
        "bytes of the encoded name of the namespace",
        encoded(namespace).len(),
        "",
        ENCODED_NAME_BYTES_MAX,
    )
}

/// A namespace as a file name: letters, digits, `-`, `_`, `.` but not at the start, and characters beyond
/// ASCII stay.
fn encoded(namespace: &str) -> String {
    let mut out = String::with_capacity(namespace.len());
    for (at, c) in namespace.char_indices() {
        let is_kept = c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || (c == '.' && at > 0);
        if is_kept || (!c.is_ascii() && !c.is_control()) {
            out.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    out
}

/// The namespace of a file name; `None` if no namespace has it.
fn decoded(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok())?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after.get(2..)?;
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok().filter(|namespace| !namespace.is_empty() && encoded(namespace) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_a_file_name_of_its_own() {
        for (namespace, want) in [
            ("alerts", "alerts"),
            ("a.b-c_d", "a.b-c_d"),
            ("a/b", "a%2Fb"),
            ("..", "%2E."),
            (".", "%2E"),
            ("a b%2F", "a%20b%252F"),
            ("a\\b\n", "a%5Cb%0A"),
            ("ä日", "ä日"),
            ("a\u{85}", "a%C2%85"),
            ("A", "A"),
        ] {
            assert_eq!(encoded(namespace), want);
            assert_eq!(decoded(want).as_deref(), Some(namespace));
        }
        for foreign in ["", "a b", "a%2f", "%41", "a%2", "a%", "%FF", ".a", "a%zz"] {
            assert_eq!(decoded(foreign), None, "{foreign}");
        }
        assert!(check_name("").is_err());
        assert!(check_name(&"a".repeat(240)).is_ok());
        let error = check_name(&"/".repeat(81)).expect_err("too long");
        assert_eq!(error.to_string(), "bytes of the encoded name of the namespace: 243, the limit is 240");
    }
}
