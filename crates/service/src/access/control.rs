//! Access control of a running server: the access file, read again when it changes, and logins against it.
//!
//! Invariants: a file that cannot be used leaves the principals in use as they are; without a file and
//! without users no login is asked for.
//! Not here: syntax of the file (`file`), headers and statuses (`server`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use chronolith_base::{Env, Rng};
use parking_lot::{Mutex, RwLock};
use ring::hmac;

use super::directory::Directory;
use super::file;
use super::jwt::key_files::KeyFiles;
use super::jwt::providers::{FetchReport, KeyFetch, ProviderStatus, Providers};
use super::jwt::refusal::{Refusal, RefusalCounters};
use super::jwt::{self, JwtLogins, JwtRules, Unverified};
use super::passwords::{BcryptHash, Busy, Passwords};
use super::principal::Principal;
use crate::counter::Counter;

/// Settings of access control.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessOptions {
    /// File with principals; `None`: every caller may do everything.
    pub file: Option<PathBuf>,
}

/// Principals of a running server.
pub struct AccessControl {
    options: AccessOptions,
    multitenancy: bool,
    directory: RwLock<Arc<Directory>>,
    sources: Mutex<Sources>,
    has_web_users: AtomicBool,
    passwords: Passwords,
    key_files: Mutex<KeyFiles>,
    providers: Mutex<Providers>,
    jwt: RwLock<Arc<JwtLogins>>,
    /// Key of digests of tokens.
    digest_key: hmac::Key,
    /// Text of the file at the last reading, good or bad, or the reason why there was none.
    read_text: Mutex<Option<Result<Vec<u8>, String>>>,
    /// Counters and state for metrics.
    pub metrics: AccessMetrics,
}

/// Principals by the file that has them.
#[derive(Default)]
struct Sources {
    access_file: Directory,
    web_users: Vec<(String, BcryptHash)>,
}

/// Counters of logins and the state of the access file.
#[derive(Default)]
pub struct AccessMetrics {
    /// Requests without credentials where some are needed.
    pub missing: Counter,
    /// Requests with wrong credentials.
    pub wrong: Counter,
    /// Requests with credentials that have expired.
    pub expired: Counter,
    /// Requests whose password could not be verified, because too many were waiting.
    pub busy: Counter,
    /// Requests that the principal may not send.
    pub denied: Counter,
    /// Time of the last reading of the file that succeeded, ms since 1970; 0 before the first.
    pub read_ms: AtomicI64,
    /// True if the last reading succeeded.
    pub read_ok: AtomicBool,
    /// JWTs that are no login, by reason.
    pub jwt_refused: RefusalCounters,
    /// Time of the last reading of a file of keys that succeeded, ms since 1970; 0 before the first.
    pub keys_read_ms: AtomicI64,
    /// True if all files of keys could be used when they were last read, and if there is none.
    pub keys_ok: AtomicBool,
    /// Requests with a JWT that cannot be verified before the keys of its issuer have been fetched.
    pub keys_pending: Counter,
    /// Fetches of keys that succeeded.
    pub key_fetches: Counter,
    /// Fetches of keys that failed.
    pub key_fetches_failed: Counter,
}

/// Reason why a sender is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// No credentials.
    #[error("authentication is required")]
    Missing,
    /// Credentials that no principal has.
    #[error("authentication failed")]
    Wrong,
    /// A JWT that is no login; the reason is for the log alone.
    #[error("authentication failed")]
    Jwt(Refusal),
    /// A token signed with InfluxDB's shared secret that is no login; the reason is for the log alone.
    #[error("authentication failed")]
    SignedToken(&'static str),
    /// A JWT whose key is not known before the keys of its issuer have been fetched.
    #[error("the keys of the token's issuer are being fetched")]
    KeysPending,
    /// More passwords are being verified than the server allows.
    #[error("{0}")]
    Busy(#[from] Busy),
    /// Credentials whose time is over.
    #[error("the credentials of {0:?} have expired")]
    Expired(Arc<str>),
}

impl AccessControl {
    /// Access control without principals; [`AccessControl::read`] reads the file.
    #[must_use]
    pub fn new(options: AccessOptions, multitenancy: bool, rng: &Rng) -> AccessControl {
        let digest_key = jwt::digest_key(rng);
        AccessControl {
            options,
            multitenancy,
            directory: RwLock::default(),
            sources: Mutex::default(),
            has_web_users: AtomicBool::new(false),
            passwords: Passwords::new(rng),
            key_files: Mutex::default(),
            providers: Mutex::default(),
            jwt: RwLock::new(Arc::new(JwtLogins::new(
                &JwtRules::default(),
                &KeyFiles::default(),
                &Providers::default(),
                &digest_key,
            ))),
            digest_key,
            read_text: Mutex::default(),
            metrics: AccessMetrics::default(),
        }
    }

    /// Returns true if senders have to log in.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.has_file() || self.has_web_users.load(Ordering::Acquire)
    }

    /// Returns true if there is an access file.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.options.file.is_some()
    }

    /// Replaces the users of the web configuration file: each may do everything for every tenant, except for
    /// a name that the access file has as well, whose entry counts.
    pub fn set_web_users(&self, users: &[(String, BcryptHash)]) {
        let mut sources = self.sources.lock();
        sources.web_users = users.to_vec();
        self.use_sources(&sources);
        if !users.is_empty() {
            // Never back: a file that loses its users must not open a running server.
            self.has_web_users.store(true, Ordering::Release);
        }
    }

    fn use_sources(&self, sources: &Sources) {
        let mut directory = sources.access_file.clone();
        for (name, hash) in &sources.web_users {
            directory.add_unrestricted(name, hash.clone());
        }
        self.passwords.set_users(directory.password_hashes());
        *self.directory.write() = Arc::new(directory);
    }

    /// Principals in use.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.read().clone()
    }

    /// Reads the file if its text has changed since the last reading. Returns true if other principals are
    /// in use now.
    ///
    /// # Errors
    /// Text for the operator: file, line and expected form. It is returned once for each text of the file,
    /// and once for a file that cannot be read.
    pub fn read(&self, env: &Env) -> Result<bool, String> {
        let principals = self.read_principals(env);
        if principals == Ok(true) {
            self.providers.lock().set(self.directory().jwt().discovered());
        }
        let keys = self.read_keys(env);
        if principals == Ok(true) || keys != Ok(false) {
            self.use_keys();
        }
        match (principals, keys) {
            (Err(principals), Err(keys)) => Err(format!("{principals}; {keys}")),
            (Err(why), Ok(_)) | (Ok(_), Err(why)) => Err(why),
            (Ok(principals), Ok(keys)) => Ok(principals || keys),
        }
    }

    /// Reads the files of keys that have changed. Returns true if other keys are in use.
    fn read_keys(&self, env: &Env) -> Result<bool, String> {
        let directory = self.directory();
        let mut files = self.key_files.lock();
        let read = files.read(directory.jwt().key_files(), env);
        self.metrics.keys_ok.store(files.is_good(), Ordering::Relaxed);
        if read == Ok(true) {
            self.metrics.keys_read_ms.store(env.clock.now_ms(), Ordering::Relaxed);
        }
        read
    }

    /// Replaces the logins by JWT by others with the keys that files and providers have.
    fn use_keys(&self) {
        let files = self.key_files.lock();
        let providers = self.providers.lock();
        let logins = JwtLogins::new(self.directory().jwt(), &files, &providers, &self.digest_key);
        *self.jwt.write() = Arc::new(logins);
    }

    /// Begins the fetches of issuers' keys that are due at a monotonic time.
    #[must_use]
    pub fn begin_key_fetches(&self, now_ns: u64) -> Vec<KeyFetch> {
        self.providers.lock().begin_due(now_ns)
    }

    /// Takes fetched keys into use. Returns the outcomes that differ from those before them. It is called by
    /// the thread that calls [`AccessControl::read`].
    pub fn take_fetched_keys(&self, env: &Env) -> Vec<FetchReport> {
        let fetched = self.providers.lock().take(env.clock.mono_ns(), env.clock.now_ms());
        self.metrics.key_fetches.add(fetched.success_count);
        self.metrics.key_fetches_failed.add(fetched.failure_count);
        if fetched.is_changed {
            self.use_keys();
        }
        fetched.reports
    }

    /// State of each issuer whose keys are fetched.
    #[must_use]
    pub fn providers(&self) -> Vec<ProviderStatus> {
        self.providers.lock().statuses()
    }

    fn read_principals(&self, env: &Env) -> Result<bool, String> {
        let Some(path) = &self.options.file else { return Ok(false) };
        let mut last = self.read_text.lock();
        let failed = |why: String| {
            self.metrics.read_ok.store(false, Ordering::Relaxed);
            format!("access file {}: {why}", path.display())
        };
        let text = env.disk.read(path).map_err(|error| error.to_string());
        if last.as_ref() == Some(&text) {
            return Ok(false);
        }
        *last = Some(text.clone());
        let parsed = text.and_then(|bytes| file::parse_bytes(&bytes, self.multitenancy));
        let mut directory = parsed.map_err(failed)?;
        directory.resolve_key_files(path.parent());
        let mut sources = self.sources.lock();
        sources.access_file = directory;
        self.use_sources(&sources);
        self.metrics.read_ok.store(true, Ordering::Relaxed);
        self.metrics.read_ms.store(env.clock.now_ms(), Ordering::Relaxed);
        Ok(true)
    }

    /// Returns the principal `found` for a login, unless its time is over.
    ///
    /// # Errors
    /// [`LoginError::Wrong`] for `None`, [`LoginError::Expired`].
    pub fn admit(&self, found: Option<Arc<Principal>>, now_ms: i64) -> Result<Arc<Principal>, LoginError> {
        let principal = found.ok_or(LoginError::Wrong)?;
        if principal.is_expired(now_ms) {
            return Err(LoginError::Expired(principal.name().into()));
        }
        Ok(principal)
    }

    /// Returns the principal of a user with the right password; `None` for others. Cost: one bcrypt, unless
    /// the password was right before; an unknown user takes as long.
    ///
    /// # Errors
    /// [`LoginError::Busy`] if more passwords are being verified than the server allows.
    pub async fn verify_password(
        &self,
        user: &str,
        password: &str,
    ) -> Result<Option<Arc<Principal>>, LoginError> {
        let found = self.directory().user(user).cloned();
        let stored = found.as_ref().map(|user| &user.password_hash);
        let is_right = self.passwords.is_right(stored, password.as_bytes()).await?;
        Ok(found.filter(|_| is_right).map(|user| user.principal))
    }

    /// Verifies a password of another kind in the queue of all passwords; see [`Passwords::run`].
    ///
    /// # Errors
    /// [`LoginError::Busy`].
    pub async fn verify_in_turn(
        &self,
        is_known: impl Fn() -> bool,
        verify: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<bool, LoginError> {
        Ok(self.passwords.run(is_known, verify).await?)
    }

    /// Returns the principal of a JWT; `None` if `text` is none, or no issuer is known.
    ///
    /// # Errors
    /// [`LoginError::Jwt`] for a token that is no login, [`LoginError::KeysPending`].
    pub fn find_jwt(&self, text: &str, now_ms: i64) -> Result<Option<Arc<Principal>>, LoginError> {
        let logins = self.jwt.read().clone();
        if !logins.takes(text) {
            return Ok(None);
        }
        logins.verify(text, now_ms).map(Some).map_err(|unverified| match unverified {
            Unverified::Refused(refusal) => LoginError::Jwt(refusal),
            Unverified::KeysPending => LoginError::KeysPending,
        })
    }

    /// Number of keys that JWTs are verified with.
    #[must_use]
    pub fn jwt_key_count(&self) -> usize {
        self.jwt.read().key_count()
    }

    /// Counts a request that its principal may not send.
    pub fn count_denied(&self) {
        self.metrics.denied.add(1);
    }

    /// Counts a request that is refused for `error`.
    pub fn count_refused(&self, error: &LoginError) {
        let counter = match error {
            LoginError::Missing => &self.metrics.missing,
            LoginError::Wrong | LoginError::SignedToken(_) => &self.metrics.wrong,
            LoginError::Jwt(refusal) => {
                self.metrics.jwt_refused.count(*refusal);
                &self.metrics.wrong
            }
            LoginError::Expired(_) => &self.metrics.expired,
            LoginError::KeysPending => &self.metrics.keys_pending,
            LoginError::Busy(_) => &self.metrics.busy,
        };
        counter.add(1);
    }
}
