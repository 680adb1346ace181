//! `chronolith block verify`: all checksums of blocks, the order of their indexes, every chunk down to its
//! samples, the counts of `meta.json`, and the sidecar of a block that has one.
//!
//! Invariants: exit code 1 if anything is damaged, each damage with file and offset; one damaged block does
//! not hide others.
//! Not here: the rules (`chronolith-block`).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chronolith_base::{DiskFile, Env};
use chronolith_block::{Block, BlockVerification, Damage, write_sidecar};
use chronolith_format::bucket::sidecar::SIDECAR_OBJECT;
use clap::{ArgMatches, Command};
use serde_json::json;

use crate::progress::{Bar, WithoutTerminal, cells};

/// Bytes between two looks at the progress.
const STEP_BYTES: u64 = 16 << 20;

pub(super) fn command() -> Command {
    Command::new("verify").about("Verify blocks completely; exit code 1 if something is damaged")
}

/// Findings of all blocks.
#[derive(Default)]
struct Report {
    blocks: u64,
    sidecars: u64,
    samples: u64,
    bytes: u64,
    damages: Vec<Damage>,
}

pub(super) fn run(
    env: &Env,
    dirs: &[PathBuf],
    matches: &ArgMatches,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    let mut bar = Bar::new(env, WithoutTerminal::Log);
    for (done, dir) in dirs.iter().enumerate() {
        let line = |_| {
            let cells = cells(done as u64, dirs.len() as u64);
            format!("{cells}  {} of {} blocks, {}", done + 1, dirs.len(), dir.display())
        };
        report.add_block(env, dir, &mut || bar.draw(line));
    }
    bar.clear();
    let text = if matches.get_flag("json") { report.json() } else { report.text() };
    out.write_all(text.as_bytes())?;
    Ok(if report.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Report {
    fn add_block(&mut self, env: &Env, dir: &Path, progress: &mut dyn FnMut()) {
        self.blocks += 1;
        let block = match Block::open(env, dir) {
            Ok(block) => block,
            Err(error) => return self.damage(dir.to_owned(), 0, error.to_string()),
        };
        self.samples += block.meta().stats.num_samples;
        self.bytes += block.size_bytes();
        let mut verification = BlockVerification::new(&block);
        progress();
        while !verification.step(STEP_BYTES) {
            progress();
        }
        let is_sound = verification.damages().is_empty();
        self.damages.extend_from_slice(verification.damages());
        let path = dir.join(SIDECAR_OBJECT);
        // A sidecar of a damaged block has nothing to be compared with.
        if is_sound && env.disk.exists(&path) {
            self.sidecars += 1;
            self.add_sidecar(env, &block, path);
        }
    }

    fn damage(&mut self, path: PathBuf, offset: u64, what: String) {
        self.damages.push(Damage { path, offset, what });
    }

    /// Compares the sidecar with a sidecar made from the block.
    fn add_sidecar(&mut self, env: &Env, block: &Block, path: PathBuf) {
        let file = match env.disk.open_read(&path) {
            Ok(file) => file,
            Err(error) => return self.damage(path, 0, error.to_string()),
        };
        let mut comparison = Comparison::new(&*file);
        match write_sidecar(env, block, |bytes| comparison.push(bytes)) {
            Ok(_) => {}
            Err(error) => return self.damage(path, 0, format!("sidecar cannot be compared: {error}")),
        }
        if let Some((offset, what)) = comparison.finish() {
            self.damage(path, offset, what);
        }
    }

    fn text(&self) -> String {
        let line = |damage: &Damage| {
            format!("damaged: {}: offset {}: {}\n", damage.path.display(), damage.offset, damage.what)
        };
        let mut text: String = self.damages.iter().map(line).collect();
        let Report { blocks, sidecars, samples, bytes, damages } = self;
        text.push_str(&format!(
            "verified {blocks} blocks with {samples} samples, {bytes} bytes, {sidecars} sidecars; {} damages\n",
            damages.len()
        ));
        text
    }

    fn json(&self) -> String {
        let damage =
            |damage: &Damage| json!({ "path": damage.path, "offset": damage.offset, "what": damage.what });
        let damages: Vec<_> = self.damages.iter().map(damage).collect();
        let value = json!({ "blocks": self.blocks, "samples": self.samples, "bytes": self.bytes,
            "sidecars": self.sidecars, "damages": damages });
        format!("{value}\n")
    }
}

/// Compares a file with bytes that come in pieces.
struct Comparison<'a> {
    file: &'a dyn DiskFile,
    offset: u64,
    found: Vec<u8>,
    /// First byte that differs, with a description.
    difference: Option<(u64, String)>,
}

impl<'a> Comparison<'a> {
    fn new(file: &'a dyn DiskFile) -> Comparison<'a> {
        Comparison { file, offset: 0, found: Vec::new(), difference: None }
    }

    fn push(&mut self, expected: &[u8]) {
        let start = self.offset;
        self.offset += expected.len() as u64;
        if self.difference.is_some() {
            return;
        }
        self.found.resize(expected.len(), 0);
        if let Err(error) = self.file.read_at(&mut self.found, start) {
            self.difference = Some((start, format!("sidecar: {} bytes from here: {error}", expected.len())));
            return;
        }
        let differing = expected.iter().zip(&self.found).enumerate().find(|(_, (a, b))| a != b);
        if let Some((idx, (expected, found))) = differing {
            let what =
                format!("sidecar: expected byte {expected:#04x} as the block gives, found {found:#04x}");
            self.difference = Some((start + idx as u64, what));
        }
    }

    fn finish(self) -> Option<(u64, String)> {
        let expected = self.offset;
        self.difference.or_else(|| match self.file.len() {
            Ok(found) if found == expected => None,
            Ok(found) => Some((expected, format!("sidecar: expected {expected} bytes, found {found}"))),
            Err(error) => Some((expected, error.to_string())),
        })
    }
}
