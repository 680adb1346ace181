//! Spool of series records that wait until the symbols are known: in memory while few, beyond that in a file
//! that is never synced.

use std::path::{Path, PathBuf};

use chronolith_base::{DiskFile, Env};

use crate::BlockError;

/// Bytes that are kept in memory before they are written to the file, and the unit of reading back: most
/// blocks never have a file.
const SPOOL_BYTES_MAX: usize = 4 << 20;
const LENGTH_BYTES: usize = 4;

pub(super) struct Spool {
    env: Env,
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    file_bytes: u64,
    memory: Vec<u8>,
    pub(super) bytes_max: usize,
}

impl Spool {
    pub(super) fn new(env: &Env, path: PathBuf) -> Spool {
        let (memory, bytes_max) = (Vec::new(), SPOOL_BYTES_MAX);
        Spool { env: env.clone(), path, file: None, file_bytes: 0, memory, bytes_max }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn push(&mut self, record: &[u8]) -> Result<(), BlockError> {
        let len = u32::try_from(record.len()).map_err(|_| BlockError::TooLarge {
            path: self.path.clone(),
            what: "series entry",
            limit: u64::from(u32::MAX),
        })?;
        self.memory.extend_from_slice(&len.to_le_bytes());
        self.memory.extend_from_slice(record);
        if self.memory.len() >= self.bytes_max {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(self.env.disk.create(&self.path).map_err(BlockError::io(&self.path))?),
            };
            file.write_at(&self.memory, self.file_bytes).map_err(BlockError::io(&self.path))?;
            self.file_bytes += self.memory.len() as u64;
            self.memory.clear();
        }
        Ok(())
    }

    /// Calls `visit` with every record, in order.
    pub(super) fn for_each(
        &mut self,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let mut part = Vec::new();
        let mut position = 0u64;
        while let Some(file) = self.file.as_ref().filter(|_| position < self.file_bytes) {
            let have = part.len();
            let more = (self.file_bytes - position).min(SPOOL_BYTES_MAX as u64);
            part.resize(have + more as usize, 0);
            let fresh = part.get_mut(have..).unwrap_or_default();
            file.read_at(fresh, position).map_err(BlockError::io(&self.path))?;
            position += more;
            let done = visit_whole(&part, visit)?;
            part.drain(..done);
        }
        let rest = visit_whole(&self.memory, visit)?;
        assert!(part.is_empty() && rest == self.memory.len(), "records do not cross from file to memory");
        self.memory = Vec::new();
        Ok(())
    }

    /// Removes the file.
    pub(super) fn remove(&mut self) -> Result<(), BlockError> {
        match self.file.take() {
            Some(_) => self.env.disk.remove_file(&self.path).map_err(BlockError::io(&self.path)),
            None => Ok(()),
        }
    }
}

/// Visits the records that lie in `part` wholly; returns how many bytes they take.
fn visit_whole(
    part: &[u8],
    visit: &mut dyn FnMut(&[u8]) -> Result<(), BlockError>,
) -> Result<usize, BlockError> {
    let mut done = 0;
    while let Some((front, rest)) = part.get(done..).and_then(|p| p.split_first_chunk::<LENGTH_BYTES>()) {
        let Some(record) = rest.get(..u32::from_le_bytes(*front) as usize) else { break };
        visit(record)?;
        done += LENGTH_BYTES + record.len();
    }
    Ok(done)
}
