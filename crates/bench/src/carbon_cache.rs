//! carbon-cache of Debian as a peer: its configuration, and the points in its whisper files.
//!
//! Invariants: one process as Debian runs it; limits on creates and updates per minute are off, so that it
//! writes as fast as it can.

use std::path::Path;

use anyhow::Result;

use crate::http::free_port;

/// Bytes of the header of a whisper file with one archive.
const HEADER_BYTES: usize = 28;
/// Bytes of a point: seconds and value.
const POINT_BYTES: usize = 12;

/// Writes the configuration below `dir` and returns the arguments of the program.
pub(crate) fn args(dir: &Path, line_port: u16, retentions: &str) -> Result<Vec<String>> {
    let root = dir.display();
    let text = format!(
        "[cache]\nSTORAGE_DIR = {root}\nCONF_DIR = {root}\nLOG_DIR = {root}\nPID_DIR = {root}\n\
         LOCAL_DATA_DIR = {root}/data\nUSER =\nMAX_CACHE_SIZE = inf\nMAX_UPDATES_PER_SECOND = inf\n\
         MAX_CREATES_PER_MINUTE = inf\nLINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = {line_port}\n\
         PICKLE_RECEIVER_INTERFACE = 127.0.0.1\nPICKLE_RECEIVER_PORT = {}\n\
         CACHE_QUERY_INTERFACE = 127.0.0.1\nCACHE_QUERY_PORT = {}\nENABLE_LOGROTATION = False\n\
         LOG_UPDATES = False\nLOG_CREATES = False\nENABLE_TAGS = False\nCACHE_WRITE_STRATEGY = naive\n",
        free_port()?,
        free_port()?
    );
    std::fs::write(dir.join("carbon.conf"), text)?;
    let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
    std::fs::write(dir.join("storage-schemas.conf"), schemas)?;
    let config = format!("--config={}", dir.join("carbon.conf").display());
    Ok(vec!["--nodaemon".into(), config, "start".into()])
}

/// Counts the points of whisper files from `first_s` on.
pub(crate) fn count_points(dir: &Path, first_s: i64) -> Result<u64> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            count += count_points(&path, first_s)?;
        } else if path.extension().is_some_and(|extension| extension == "wsp") {
            let bytes = std::fs::read(&path)?;
            let points = bytes.get(HEADER_BYTES..).unwrap_or(&[]).chunks_exact(POINT_BYTES);
            let time = |point: &[u8]| {
                point.first_chunk().map_or(0, |bytes: &[u8; 4]| i64::from(u32::from_be_bytes(*bytes)))
            };
            count += points.filter(|point| time(point) >= first_s).count() as u64;
        }
    }
    Ok(count)
}
