//! Directories that the steps share.

use std::path::PathBuf;

pub(super) struct Checkout {
    pub(super) root: PathBuf,
    pub(super) target_dir: PathBuf,
}

impl Checkout {
    /// The server that the kits test: the dev profile, which optimises (opt-level 1) and keeps checks of
    /// overflow and debug assertions, and shares its dependencies with `cargo test`.
    pub(super) fn server_binary(&self) -> PathBuf {
        self.target_dir.join("debug/chronolith")
    }
}
