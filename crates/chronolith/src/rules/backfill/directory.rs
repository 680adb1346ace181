//! Backfill in the data directory of a stopped server, with its settings.
//!
//! Invariant: the directory is locked; it has all that is done once this returns.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_model::TenantId;
use chronolith_service::Service;
use chronolith_service::access::Identity;
use chronolith_service::evaluation::rules::backfill::{
    BackfillEnd, BackfillError, BackfillMode, BackfillProgress, BackfillRequest, BackfillTotals, prepare,
    read_groups,
};
use chronolith_service::limits::RULE_BACKFILL_TIME_MAX_MS;
use chronolith_tsdb::{ReplayProgress, Tsdb};
use clap::Command;

use super::progress_file::Counts;
use super::report::{Chunk, Outcome, Reporter};
use super::wanted::Wanted;
use crate::settings::{Settings, Sources, add_flags};
use crate::{foreign_dir, locked_dir, serve};

/// Names of alerting rules that are shown.
const NAMES_MAX: usize = 20;

pub(super) fn run(
    env: &Env,
    dir: PathBuf,
    config: Option<&str>,
    wanted: &Wanted<'_>,
    reporter: &mut Reporter,
) -> anyhow::Result<Outcome> {
    let settings = settings(env, &dir, config)?;
    anyhow::ensure!(
        settings.server.bucket.is_none(),
        "the server reads a bucket too: start it, and use --url"
    );
    foreign_dir::require_own(&*env.disk, &dir)?;
    let options = settings.server.service;
    let store = Tsdb::open(env.clone(), options.tsdb_options(), Arc::new(ReplayProgress::default()))
        .map_err(locked_dir::explain_backfill)?;
    let service = Service::new(env.clone(), options);
    service.set_store(store.clone(), Vec::new());
    let outcome = run_on(&service, &store, wanted, reporter);
    store.close().context("closing the data directory")?;
    outcome
}

/// Settings of a server over `dir`, from its file and from variables.
fn settings(env: &Env, dir: &std::path::Path, config: Option<&str>) -> anyhow::Result<Settings> {
    let dir = dir.to_str().context("--data-dir is not UTF-8")?;
    let mut flags = vec!["serve", "--data-dir", dir];
    flags.extend(config.map(|path| ["--config", path]).into_iter().flatten());
    let flags = add_flags(Command::new("serve")).try_get_matches_from(flags)?;
    let environment = serve::environment();
    Ok(Sources { flags: &flags, environment: &environment, disk: &*env.disk }.resolve()?)
}

fn run_on(
    service: &Service,
    store: &Arc<Tsdb>,
    wanted: &Wanted<'_>,
    reporter: &mut Reporter,
) -> anyhow::Result<Outcome> {
    let tenant = match wanted.tenant {
        Some(name) => TenantId::new(name).context("--tenant")?,
        None => TenantId::anonymous(),
    };
    let groups = read_groups(service, &wanted.files).map_err(anyhow::Error::msg)?;
    let identity = Identity::internal(&tenant);
    let class = &service.admission.rule_work.backfills;
    let admitted = service.try_admit(class, &identity, RULE_BACKFILL_TIME_MAX_MS);
    let admitted = admitted.context("no backfill may run")?;
    let request = BackfillRequest {
        tenant,
        groups,
        range: wanted.range_ms,
        group_names: wanted.group_names.iter().map(|name| (*name).to_owned()).collect(),
        mode: if wanted.is_dry_run { BackfillMode::DryRun } else { BackfillMode::Write },
        resume: reporter.resume().map(str::to_owned),
    };
    let backfill = prepare(service, request)?;
    let skipped = backfill.skipped_alerts();
    let names = skipped.get(..NAMES_MAX.min(skipped.len())).unwrap_or_default();
    reporter.begin(backfill.rule_count() as u64, backfill.round_count(), names, skipped.len());
    let mut failed = None;
    let end = backfill.run(service, &admitted, &mut |progress| {
        // The threads of a server do it otherwise.
        store.maintenance().run();
        report(reporter, progress).map_err(|error| {
            let text = format!("{error:#}");
            failed = Some(error);
            BackfillError::Write(text)
        })
    });
    let BackfillEnd { totals, first_failure, first_reject, resume, error } = end;
    if let Some(error) = failed {
        return Err(error);
    }
    let error = error.map(|error| (error.to_string(), Some(resume)));
    Ok(Outcome { counts: counts_of(&totals), first_failure, first_reject, error })
}

fn report(reporter: &mut Reporter, progress: &BackfillProgress<'_>) -> anyhow::Result<()> {
    reporter.chunk(&Chunk {
        group: &progress.group.name,
        done: progress.done_rounds,
        rounds: progress.round_count,
        until_ms: progress.done_until_ms,
        counts: counts_of(&progress.totals),
        resume: &progress.resume,
    })
}

fn counts_of(totals: &BackfillTotals) -> Counts {
    let BackfillTotals { rounds, failed_rounds, series, samples, rejected } = *totals;
    Counts {
        rounds,
        failed_rounds,
        series,
        added: samples.added,
        replaced: samples.replaced,
        removed: samples.removed,
        equal: samples.equal,
        rejected,
    }
}
