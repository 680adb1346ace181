//! Sidecar of a local block, in a file of its own until it is uploaded.
//!
//! Invariant: files of an earlier process are removed before the first upload; nothing else reads them.

use std::io;
use std::path::Path;

use chronolith_base::{DiskFile, Env};
use chronolith_block::{Block, write_sidecar};
use chronolith_bucket::upload::SidecarFile;

/// Directory below the data directory.
pub(super) const DIR: &str = "bucket-upload";
/// Bytes that are written to the file at once.
const PIECE_BYTES: usize = 1 << 20;

/// Makes the sidecar of `block` in `dir`. Cost: reads all of the block. The error names the file.
pub(crate) fn make_sidecar(env: &Env, dir: &Path, block: &Block) -> Result<SidecarFile, String> {
    let path = dir.join(format!("{}.sidecar", block.meta().ulid));
    let in_file = |error: io::Error| format!("{}: {error}", path.display());
    env.disk.create_dir_all(dir).map_err(in_file)?;
    let file = env.disk.create(&path).map_err(in_file)?;
    let mut out = Output { file, piece: Vec::with_capacity(PIECE_BYTES), offset: 0, result: Ok(()) };
    let summary = write_sidecar(env, block, |bytes| out.push(bytes)).map_err(|error| error.to_string())?;
    out.flush();
    out.result.map_err(in_file)?;
    Ok(SidecarFile { path, head_bytes: summary.head_len })
}

/// A file that is written in pieces; the first error ends the writing.
struct Output {
    file: Box<dyn DiskFile>,
    piece: Vec<u8>,
    offset: u64,
    result: io::Result<()>,
}

impl Output {
    fn push(&mut self, bytes: &[u8]) {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.result.is_ok() {
            self.result = self.file.write_at(&self.piece, self.offset);
        }
        self.offset += self.piece.len() as u64;
        self.piece.clear();
    }
}
