//! `chronolith bucket repair`: makes damaged or lost snapshots of catalogues and databases again.
//!
//! Invariants: nothing is removed or replaced but the hints `latest`; without `--write` nothing is written.
//! A catalogue is refused rather than made without a block that is damaged. Databases have no copy but their
//! snapshots: with none that can be read, or one that lacks the name of a store, they are not made.
//! Not here: content of the catalogue (`bucket::upload`), damaged blocks (`verify`).

use std::time::Duration;

use anyhow::Context as _;
use chronolith_bucket::lease::Leases;
use chronolith_bucket::snapshots::{SnapshotState, Snapshots};
use chronolith_bucket::upload::rebuild::{RebuiltCatalogue, RebuiltFrom};
use chronolith_bucket::{Folder, Purpose, RequestContext, Uploader, stores, unnamed_stores};
use chronolith_format::bucket::NumberedSnapshot;
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_model::TenantId;
use chronolith_model::databases::BucketStoreId;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use super::blocks::tenants;
use super::context::{Bucket, Outcome, tenant_arg};

/// Longest time of the repair of one folder.
const FOLDER_TIMEOUT: Duration = Duration::from_secs(3600);

pub(super) fn command() -> Command {
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("repair")
        .about("Make damaged or lost catalogues again, of older ones and of the blocks; a dry run unless --write")
        .arg(tenant_arg())
        .arg(switch("write", "Write what the dry run shows"))
        .arg(switch("ignore-lease", "Write though a lease of compaction was not released: its server is gone"))
}

/// Finding about the snapshots of one kind in one folder.
struct Finding {
    /// Key of the newest snapshot that existed, or of the folder.
    key: String,
    state: State,
    /// One line for each block or store that needs attention.
    notes: Vec<String>,
}

/// Result for the snapshots of one kind in one folder.
enum State {
    Sound,
    /// Text about the written object.
    Repaired(String),
    /// Reason why it cannot be repaired.
    Lost(String),
}

/// One run over a bucket.
struct Repair<'b> {
    bucket: &'b Bucket,
    uploader: Uploader,
    leases: Leases,
    is_written: bool,
    ignores_lease: bool,
}

pub(super) fn run(bucket: &Bucket, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    bucket.check_writable()?;
    let handle = bucket.runtime.handle().clone();
    let repair = Repair {
        bucket,
        uploader: Uploader::new(bucket.store.clone(), &bucket.env, handle),
        leases: Leases::new(bucket.store.clone(), &bucket.env, FOLDER_TIMEOUT),
        is_written: matches.get_flag("write"),
        ignores_lease: matches.get_flag("ignore-lease"),
    };
    let tenants = match bucket.tenant(matches)? {
        Some(tenant) => vec![tenant],
        None => tenants(bucket)?,
    };
    let mut findings = Vec::new();
    for tenant in &tenants {
        findings.extend(repair.tenant(tenant).with_context(|| format!("tenant {tenant}"))?);
    }
    let is_sound = !findings.iter().any(|finding| matches!(finding.state, State::Lost(_)));
    let is_written = repair.is_written;
    let text = match matches.get_flag("json") {
        true => report_json(&findings, is_written),
        false => report(&findings, is_written),
    };
    Ok(Outcome { text, is_sound })
}

impl Repair<'_> {
    fn request(&self, folder: &Folder) -> RequestContext {
        let clock = &*self.bucket.env.clock;
        RequestContext::with_timeout(clock, folder.clone(), FOLDER_TIMEOUT, Purpose::Tool)
    }

    fn tenant(&self, tenant: &TenantId) -> anyhow::Result<Vec<Finding>> {
        let request = self.request(&Folder::of_tenant(tenant));
        let stores = self.bucket.runtime.block_on(stores(&self.bucket.store, &request))?;
        let mut findings = vec![self.databases(tenant, &stores)?];
        let folders = stores.iter().map(|id| Folder::of_store(tenant, *id));
        for folder in std::iter::once(Folder::of_tenant(tenant)).chain(folders) {
            findings.push(self.catalogue(&folder)?);
        }
        Ok(findings)
    }

    /// Refuses to write while another process may hold the lease of the folder.
    fn check_lease(&self, folder: &Folder) -> anyhow::Result<()> {
        if self.ignores_lease || !self.is_written {
            return Ok(());
        }
        let request = self.request(folder);
        let held = self.bucket.runtime.block_on(self.leases.held_by_other(&request))?;
        match held {
            None => Ok(()),
            Some(key) => anyhow::bail!(
                "a server may be compacting: the lease {key} was not released; stop the server, or use --ignore-lease if it is gone"
            ),
        }
    }

    fn catalogue(&self, folder: &Folder) -> anyhow::Result<Finding> {
        let publisher = self.uploader.publisher();
        let request = self.request(folder);
        let runtime = &self.bucket.runtime;
        let state = runtime.block_on(publisher.snapshots().reader().state(&request))?;
        if !state.is_refused() {
            return self.sound(folder, publisher.snapshots(), &state);
        }
        let key = state.newest_key.clone();
        let rebuilt = runtime.block_on(publisher.rebuild_catalogue(&request, state.readable.as_deref()));
        let rebuilt = match rebuilt {
            Ok(rebuilt) => rebuilt,
            Err(error) => {
                return Ok(Finding { key, state: State::Lost(error.to_string()), notes: Vec::new() });
            }
        };
        let content = catalogue_text(&state, &rebuilt);
        let notes = notes(&rebuilt);
        self.write(folder, publisher.snapshots(), &state, &rebuilt.snapshot)?;
        Ok(Finding { key, state: State::Repaired(content), notes })
    }

    fn databases(&self, tenant: &TenantId, stores: &[BucketStoreId]) -> anyhow::Result<Finding> {
        let folder = Folder::of_tenant(tenant);
        let snapshots: Snapshots<DatabasesSnapshot> =
            Snapshots::of_kind(self.bucket.store.clone(), &self.bucket.env);
        let state = self.bucket.runtime.block_on(snapshots.reader().state(&self.request(&folder)))?;
        if !state.is_refused() {
            return self.sound(&folder, &snapshots, &state);
        }
        let key = state.newest_key.clone();
        let lost = |why: String, notes| Ok(Finding { key: key.clone(), state: State::Lost(why), notes });
        let Some(readable) = &state.readable else {
            let why = "no snapshot of the databases can be read, and nothing else in the bucket has their names: restore the object from a copy";
            return lost(why.to_owned(), Vec::new());
        };
        let content = &readable.content;
        let unnamed: Vec<String> = unnamed_stores(stores, content)
            .into_iter()
            .map(|id| format!("store {id}: has objects, and no snapshot that can be read has its database"))
            .collect();
        let number = readable.stamp.number;
        if !unnamed.is_empty() {
            let why = format!(
                "snapshot {number} is too old, stores would have no name: restore the object from a copy"
            );
            return lost(why, unnamed);
        }
        self.write(&folder, &snapshots, &state, readable)?;
        let text = format!(
            "snapshot {} with the {} databases of snapshot {number}; changes after it are lost",
            state.newest_number + 1,
            content.databases.len()
        );
        Ok(Finding { key, state: State::Repaired(text), notes: Vec::new() })
    }

    /// A folder whose newest snapshot can be read, or that has none: at most its hint is damaged.
    fn sound<S: NumberedSnapshot>(
        &self,
        folder: &Folder,
        snapshots: &Snapshots<S>,
        state: &SnapshotState<S>,
    ) -> anyhow::Result<Finding> {
        let Some(hint) = state.damaged_hint.clone().filter(|_| state.newest_number > 0) else {
            return Ok(Finding { key: state.newest_key.clone(), state: State::Sound, notes: Vec::new() });
        };
        if self.is_written {
            let request = self.request(folder);
            let repaired = snapshots.repair_hint(&request, state.newest_number);
            self.bucket.runtime.block_on(repaired).with_context(|| format!("writing {hint}"))?;
        }
        let text = format!("the number {} of the newest snapshot", state.newest_number);
        Ok(Finding { key: hint, state: State::Repaired(text), notes: Vec::new() })
    }

    fn write<S: NumberedSnapshot>(
        &self,
        folder: &Folder,
        snapshots: &Snapshots<S>,
        state: &SnapshotState<S>,
        next: &S,
    ) -> anyhow::Result<()> {
        self.check_lease(folder)?;
        if self.is_written {
            let request = self.request(folder);
            let written = snapshots.continue_after(&request, state, next);
            let key = &state.newest_key;
            self.bucket
                .runtime
                .block_on(written)
                .with_context(|| format!("writing the snapshot after {key}"))?;
        }
        Ok(())
    }
}

fn catalogue_text(state: &SnapshotState<Snapshot>, rebuilt: &RebuiltCatalogue) -> String {
    let count = |from: RebuiltFrom| rebuilt.blocks.values().filter(|one| **one == from).count();
    let source = match &state.readable {
        Some(readable) => format!("snapshot {}", readable.number),
        None => "no snapshot".to_owned(),
    };
    format!(
        "snapshot {} with {} blocks: {} of {source}, {} with later deletions, {} of their folders",
        state.newest_number + 1,
        rebuilt.blocks.len(),
        count(RebuiltFrom::Snapshot),
        count(RebuiltFrom::SnapshotAndDeletions),
        count(RebuiltFrom::Folder)
    )
}

fn notes(rebuilt: &RebuiltCatalogue) -> Vec<String> {
    let from = |from: RebuiltFrom| match from {
        RebuiltFrom::Snapshot => None,
        RebuiltFrom::SnapshotAndDeletions => Some("recorded with its later deletions"),
        RebuiltFrom::Folder => Some("recorded by its meta.json and objects"),
    };
    let recorded = rebuilt.blocks.iter().filter_map(|(ulid, one)| Some(format!("{ulid}: {}", from(*one)?)));
    let replaced = rebuilt.replaced.iter();
    let replaced = replaced.map(|(ulid, by)| format!("{ulid}: left out and marked, {by} was made of it"));
    let partial = rebuilt.partial.iter();
    let partial = partial
        .map(|ulid| format!("{ulid}: left out, blocks that were written together with it are missing"));
    let gone = rebuilt.gone.iter();
    let gone = gone.map(|ulid| format!("{ulid}: left out, its objects are gone; it may have expired"));
    recorded.chain(replaced).chain(partial).chain(gone).collect()
}

fn report(findings: &[Finding], is_written: bool) -> String {
    let verb = if is_written { "written" } else { "to write" };
    let mut text = String::new();
    for Finding { key, state, notes } in findings {
        match state {
            State::Sound => continue,
            State::Repaired(what) => text.push_str(&format!("{key}: damaged; {verb}: {what}\n")),
            State::Lost(why) => text.push_str(&format!("{key}: damaged; not repaired: {why}\n")),
        }
        notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
    }
    let count = |is: fn(&State) -> bool| findings.iter().filter(|finding| is(&finding.state)).count();
    let repaired = count(|state| matches!(state, State::Repaired(_)));
    let lost = count(|state| matches!(state, State::Lost(_)));
    text.push_str(&format!(
        "{} lists of snapshots, {repaired} {}, {lost} not repaired\n",
        findings.len(),
        if is_written { "repaired" } else { "to repair (--write)" }
    ));
    text
}

fn report_json(findings: &[Finding], is_written: bool) -> String {
    let finding = |finding: &Finding| {
        let (state, text) = match &finding.state {
            State::Sound => ("sound", ""),
            State::Repaired(text) => ("repaired", text.as_str()),
            State::Lost(text) => ("lost", text.as_str()),
        };
        json!({ "key": finding.key, "state": state, "text": text, "notes": finding.notes })
    };
    let findings: Vec<Value> = findings.iter().map(finding).collect();
    format!("{}\n", json!({ "written": is_written, "snapshots": findings }))
}
