//! `chronolith import whisper --data-dir`: brings the files into the Graphite store of a data directory.
//! Invariant: the data directory is locked meanwhile.
//! Not here: reading files and writing blocks (`chronolith-import`).

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_format::store_name;
use chronolith_import::whisper::{self, WhisperOptions, WhisperReport};
use chronolith_model::databases::CatalogChange;
use chronolith_model::{StoreId, TenantId};
use chronolith_tsdb::CatalogEditor;

use super::whisper_args::WhisperArgs;
use crate::locked_dir::lock_to_write;
use crate::progress::{Bar, WithoutTerminal, bytes_line};
use crate::query::print;

/// Tenant if none is named.
const DEFAULT_TENANT: &str = "anonymous";

/// Imports into the data directory `data_dir`, which is created if it is missing.
pub(super) fn import(
    env: &Env,
    args: WhisperArgs,
    data_dir: &Path,
    tenant: Option<&str>,
) -> anyhow::Result<WhisperReport> {
    let tenant = TenantId::new(tenant.unwrap_or(DEFAULT_TENANT)).context("--tenant")?;
    env.disk.create_dir_all(data_dir).with_context(|| format!("creating {}", data_dir.display()))?;
    let _lock = lock_to_write(env, data_dir)?;
    let store = graphite_store(env, data_dir, &tenant)?;
    let workers = args.concurrency.and_then(|count| usize::try_from(count).ok());
    let options = WhisperOptions {
        blocks_dir: chronolith_tsdb::tenant_dir(data_dir, &store),
        state_path: data_dir.join("import").join(format!("{}.json", store_name(&store))),
        selection: args.selection,
        comparison: args.comparison,
        rules: Arc::new(args.rules),
        worker_count: workers.unwrap_or_else(whisper::default_worker_count),
    };
    let mut bar = Bar::new(env, WithoutTerminal::Log);
    let mut draw = |progress| bar.draw(|seconds| bytes_line(progress, seconds));
    let report = whisper::run(env, &args.source, &options, &mut draw);
    bar.clear();
    let mut report = report.with_context(|| format!("importing {}", args.source.dir.display()))?;
    report.add(args.listed);
    Ok(report)
}

/// Returns the Graphite store of `tenant`; creates it if there is none.
fn graphite_store(env: &Env, data_dir: &Path, tenant: &TenantId) -> anyhow::Result<StoreId> {
    let (editor, repaired) = CatalogEditor::open(env, data_dir)?;
    for note in repaired {
        print(&format!("note: {note}\n"));
    }
    editor.change(tenant, &CatalogChange::CreateGraphiteStore)?;
    let catalog = editor.catalog();
    let own = catalog.of(tenant).and_then(|own| own.graphite.as_ref());
    Ok(own.context("the Graphite store was not created")?.store.clone())
}
