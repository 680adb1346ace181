//! `chronolith check`: verifies a data directory, or web configuration files, without changing anything.
//! Invariant: exit code 1 if anything is damaged, each damage with file and offset. Not here: the checks
//! (`tsdb`, `server`).

mod web_config;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_tsdb::check::{CheckReport, check_dir};
use clap::{Arg, ArgMatches, Command};

use crate::args::value;
use crate::query::print;
use crate::{foreign_dir, locked_dir};

pub(crate) fn command() -> Command {
    Command::new("check")
        .about("Verify every checksum of a data directory; exit code 1 if something is damaged")
        .arg(Arg::new("dir").required(true).value_name("DIR").help("Data directory of a stopped server"))
        .subcommand(web_config::command())
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(("web-config", matches)) = matches.subcommand() {
        return Ok(web_config::run(matches, &Env::real()));
    }
    let dir = Path::new(value(matches, "dir").unwrap_or_default());
    let env = Env::real();
    env.disk.list(dir).with_context(|| format!("reading {}", dir.display()))?;
    foreign_dir::require_own(&*env.disk, dir)?;
    // The WAL and slices of a running server change while they are read, which looks like damage.
    if chronolith_tsdb::is_data_dir_locked(&env, dir).unwrap_or(false) {
        return Err(locked_dir::in_use(dir));
    }
    let report = check_dir(&env, dir).with_context(|| format!("reading {}", dir.display()))?;
    print(&show(&report));
    Ok(if report.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The report for people: findings first, the sum last.
fn show(report: &CheckReport) -> String {
    let mut out = String::new();
    for note in &report.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    for damage in &report.damages {
        out.push_str(&format!(
            "damaged: {}: offset {}: {}\n",
            damage.path.display(),
            damage.offset,
            damage.what
        ));
    }
    out.push_str(&format!(
        "verified {} bytes: {} WAL segments with {} frames, {} slices with {} sealed chunks, {} \
         series records, {} metadata entries, {} blocks with {} samples; {} damages\n",
        report.bytes,
        report.segments,
        report.frames,
        report.slices,
        report.sealed_chunks,
        report.definitions,
        report.metadata_entries,
        report.blocks,
        report.block_samples,
        report.damages.len()
    ));
    out
}

#[cfg(test)]
mod tests {
    use chronolith_tsdb::check::Damage;

    use super::*;

    #[test]
    fn damage_names_file_and_offset() {
        let clean = show(&CheckReport::default());
        assert!(clean.starts_with("verified 0 bytes") && clean.ends_with("; 0 damages\n"), "{clean}");
        let damage = Damage { path: "wal/1".into(), offset: 17, what: "checksum".to_owned() };
        let text = show(&CheckReport { damages: vec![damage], ..CheckReport::default() });
        assert!(text.starts_with("damaged: wal/1: offset 17: checksum\n"), "{text}");
    }
}
