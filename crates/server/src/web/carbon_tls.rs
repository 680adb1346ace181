//! TLS of carbon listeners (`--carbon.tls`): the file, and the connections in their handshake.
//!
//! Invariant: handshakes of carbon connections take no place of the HTTP port.
//! Not here: the file's format and its reading (`web_config`), sockets (`serve`).

use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::{Disk, Env};

use crate::connections::{Connections, OpenConnection};
use crate::web_config::{InUse, UsedBy, WebConfigFile};

/// TLS that all carbon listeners share.
pub(crate) struct CarbonTls {
    file: WebConfigFile,
    handshaking: Connections,
}

impl CarbonTls {
    /// A file that has not been read.
    pub(super) fn new(path: PathBuf, disk: &dyn Disk) -> CarbonTls {
        let file = WebConfigFile::new(path, UsedBy::Carbon);
        CarbonTls { file, handshaking: Connections::new(disk) }
    }

    /// Reads the file and its certificates, and uses them if one has changed. Returns true if others are in
    /// use now.
    ///
    /// # Errors
    /// As [`WebConfigFile::read`].
    pub(crate) fn read(&self, env: &Env) -> Result<bool, String> {
        self.file.read(env).map_err(|why| format!("carbon.tls: {why}"))
    }

    /// Settings in use.
    pub(crate) fn current(&self) -> Arc<InUse> {
        self.file.current()
    }

    pub(crate) fn file(&self) -> &WebConfigFile {
        &self.file
    }

    /// Registers a connection that begins its handshake, until the value is dropped.
    pub(crate) fn register(&self, env: &Env) -> OpenConnection {
        self.handshaking.register(env.clock.clone())
    }

    /// Connections in their handshake.
    pub(crate) fn handshake_count(&self) -> usize {
        self.handshaking.handshake_count()
    }
}
