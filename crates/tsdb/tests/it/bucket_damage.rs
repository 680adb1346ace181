//! Damage campaign over a bucket: every object of a bucket with all kinds of stores is damaged in seven ways,
//! and a read-only server reads it. Each answer is right or an error; none is short in silence.
//!
//! `CHRONOLITH_BUCKET_DAMAGE_ROUNDS=30 cargo test -p chronolith-tsdb --test it bucket_damage::` runs more
//! rounds of random positions than the one of `make test`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Disk, Rng};
use chronolith_model::databases::CatalogChange;
use chronolith_model::query::TenantSources;
use chronolith_model::{
    FIELD_LABEL, Labels, Matcher, QueryError, Queryable, ReadContext, Selector, StoreId, TenantId, TimeRange,
    WriteBatch,
};
use chronolith_tsdb::{BucketSources, Tsdb};

use crate::damage::{Files, WAYS, Way, collect, damage};
use crate::fixture::{HOUR_MS, START_MS, write};
use crate::upload::World;

pub(crate) const BUCKET: &str = "/bucket";
const HOURS: [i64; 3] = [-10, -8, -4];
const DATABASES: [&str; 2] = ["db", "other"];
/// Kinds of objects that the bucket has, numbers and identifiers replaced.
const KINDS: [&str; 8] = [
    "catalog/latest",
    "catalog/snapshot",
    "databases/latest",
    "databases/snapshot",
    "block/chunks",
    "block/index",
    "block/meta.json",
    "block/chronolith.sidecar",
];

/// All that a read-only server answers for one tenant.
pub(crate) type Answers = Vec<String>;

pub(crate) fn anonymous() -> TenantId {
    TenantId::anonymous()
}

fn change(tsdb: &Tsdb, change: &CatalogChange) {
    tsdb.databases().change(&anonymous(), change).expect("changed");
}

fn policy_store(tsdb: &Tsdb, database: &str) -> StoreId {
    let catalog = tsdb.databases().catalog();
    let own = catalog.of(&anonymous()).expect("databases");
    own.database(database).and_then(|one| one.policy("")).expect("a policy").store.clone()
}

/// Writes an hour of samples to the default store, the Graphite store and each database.
fn put(tsdb: &Tsdb, hour: i64) {
    let samples = |place: i64| -> Vec<(i64, f64)> {
        (0..40).map(|i| (START_MS + hour * HOUR_MS + i * 30_000 + place, (hour * 100 + i) as f64)).collect()
    };
    write(tsdb, &StoreId::anonymous(), "up", &samples(0)).expect("stored");
    let catalog = tsdb.databases().catalog();
    let graphite = catalog.of(&anonymous()).and_then(|own| own.graphite.clone()).expect("a Graphite store");
    write(tsdb, &graphite.store, "a.b", &samples(1)).expect("stored");
    for name in DATABASES {
        let mut batch = WriteBatch::from_labels();
        let labels =
            |field: &str| Labels::from_pairs([("__name__", "m"), (FIELD_LABEL, field), ("db", name)]);
        let in_ns: Vec<(i64, f64)> = samples(2).iter().map(|(time, v)| (time * 1_000_000, *v)).collect();
        batch.push_labels(&labels("float"), &in_ns);
        let texts: Vec<(i64, String)> = in_ns.iter().map(|(time, v)| (*time, format!("state {v}"))).collect();
        let texts: Vec<(i64, &[u8])> = texts.iter().map(|(time, text)| (*time, text.as_bytes())).collect();
        batch.push_texts(&labels("text"), &texts);
        tsdb.append(&policy_store(tsdb, name), &batch).expect("stored");
    }
}

/// A bucket with blocks of all kinds of stores, some of them replaced, and several snapshots of each kind.
///
/// Returns its objects at an earlier time.
pub(crate) fn fill(world: &World) -> Files {
    let mut earlier = Files::new();
    let tsdb = world.open("/data");
    change(&tsdb, &CatalogChange::CreateGraphiteStore);
    for name in DATABASES {
        change(&tsdb, &CatalogChange::CreateDatabase { name: name.to_owned(), policy: None });
        tsdb.bucket_jobs().upload_blocks();
    }
    for hour in HOURS {
        put(&tsdb, hour);
        world.machine.clock.advance(Duration::from_millis(1));
        tsdb.maintenance().flush_closed(world.machine.env.clock.now_ms()).expect("flushes");
        tsdb.bucket_jobs().upload_blocks();
        if hour == HOURS[1] {
            collect(&world.machine.disk, Path::new(BUCKET), &mut earlier);
        }
    }
    world.move_all(&tsdb, &|_| {});
    let by_name = [vec![Matcher::equal("__name__", "up")]];
    let end = START_MS - 10 * HOUR_MS + 300_000;
    tsdb.admin()
        .delete_series(&StoreId::anonymous(), &by_name, TimeRange::new(i64::MIN, end))
        .expect("deletes");
    world.maintain(&tsdb, 1);
    earlier
}

/// Adds all series of `source` with their samples to `answers`.
fn dump(source: &Arc<dyn Queryable>, ctx: &ReadContext, answers: &mut Answers) -> Result<(), QueryError> {
    let mut batches = source.select(&Selector { matchers: &[], range: TimeRange::ALL }, ctx)?;
    let mut series = Vec::new();
    while batches.next_batch(&mut series)? {}
    for one in series {
        let mut columns = chronolith_model::query::TypedColumns::new(one.samples.column_type());
        one.samples.read_typed(TimeRange::ALL, &mut columns)?;
        answers.push(format!("{:?} {:?} {:?}", one.labels, columns.times, columns.values));
    }
    Ok(())
}

/// Answers for PromQL, for the fields of each database that the server knows, and their names.
pub(crate) fn ask(world: &World, reader: &BucketSources) -> Result<Answers, QueryError> {
    let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
    let mut answers = Answers::new();
    dump(&reader.queryable(&anonymous()), &ctx, &mut answers)?;
    let catalog = reader.databases_of(&anonymous(), &ctx)?;
    for database in &catalog.databases {
        answers.push(database.name.clone());
        for policy in &database.policies {
            if let Some(typed) = reader.typed_queryable(&anonymous(), &catalog, &policy.store) {
                dump(&typed, &ctx, &mut answers)?;
            }
        }
    }
    Ok(answers)
}

fn store(world: &World, path: &Path, bytes: Option<&Vec<u8>>) {
    let disk = &world.machine.disk;
    match bytes {
        Some(bytes) => {
            let file = disk.create(path).expect("made");
            file.write_at(bytes, 0).expect("written");
        }
        None => disk.remove_file(path).expect("removed"),
    }
}

fn kind_of(path: &Path) -> Option<&'static str> {
    let text = path.display().to_string();
    let kind = match path.file_name()?.to_str()? {
        "latest" if text.contains("/catalog/") => "catalog/latest",
        "latest" => "databases/latest",
        _ if text.contains("/catalog/") => "catalog/snapshot",
        _ if text.contains("/databases/") => "databases/snapshot",
        _ if text.contains("/chunks/") => "block/chunks",
        "index" => "block/index",
        "meta.json" => "block/meta.json",
        "chronolith.sidecar" => "block/chronolith.sidecar",
        _ => return None,
    };
    Some(kind)
}

/// Counts of trials.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    right: usize,
    refused: usize,
}

/// Checks the answer over one damaged object; the error names the wrong part.
fn check(world: &World, want: &Answers, tally: &mut Tally) -> Result<(), String> {
    match ask(world, &world.open_read_only()) {
        Ok(answers) if answers == *want => tally.right += 1,
        Ok(answers) => {
            let lines = answers.iter().filter(|line| !want.contains(line)).take(1);
            let other: String = lines.map(|line| line.chars().take(150).collect::<String>()).collect();
            return Err(format!("{} lines instead of {}: {other}", answers.len(), want.len()));
        }
        Err(error) => {
            let text = error.to_string();
            if text.is_empty() {
                return Err("an error without a text".to_owned());
            }
            tally.refused += 1;
        }
    }
    Ok(())
}

/// A damaged or missing snapshot of the databases made all databases and the Graphite store vanish, with
/// empty answers; two damaged catalogues of a store made answers short.
#[test]
fn every_damaged_object_gives_the_right_answer_or_an_error() {
    let rounds: usize =
        std::env::var("CHRONOLITH_BUCKET_DAMAGE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let world = World::new(41);
    fill(&world);
    let mut files = Files::new();
    collect(&world.machine.disk, Path::new(BUCKET), &mut files);
    let want = ask(&world, &world.open_read_only()).expect("an answer");
    assert!(want.len() > 8 && want.iter().any(|line| line.contains("a.b")), "{want:?}");
    let mut kinds: Vec<&str> = files.keys().filter_map(|path| kind_of(path)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut all = KINDS;
    all.sort_unstable();
    assert_eq!(kinds, all, "all kinds of objects are damaged");
    let rng = Rng::from_seed(41);
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for _ in 0..rounds {
        for path in files.keys() {
            for way in WAYS {
                let mut damaged: Files = [(path.clone(), files[path].clone())].into();
                damage(&rng, &mut damaged, path, way);
                store(&world, path, damaged.get(path));
                if let Err(what) = check(&world, &want, &mut tally) {
                    failures.push(format!("{} {way:?}: {what}", path.display()));
                }
                store(&world, path, Some(&files[path]));
            }
        }
    }
    println!("{} objects, {rounds} rounds: {tally:?}, {} wrong", files.len(), failures.len());
    assert!(failures.is_empty(), "{} wrong:\n{}", failures.len(), failures.join("\n"));
    assert!(tally.right > 0 && tally.refused > 0, "{tally:?}");
}

/// The newest two snapshots of each kind and folder damaged together.
#[test]
fn two_damaged_snapshots_give_the_right_answer_or_an_error() {
    let world = World::new(42);
    fill(&world);
    let mut files = Files::new();
    collect(&world.machine.disk, Path::new(BUCKET), &mut files);
    let want = ask(&world, &world.open_read_only()).expect("an answer");
    let rng = Rng::from_seed(42);
    let mut tally = Tally::default();
    let mut folders: Vec<&Path> = files
        .keys()
        .filter(|path| kind_of(path).is_some_and(|kind| kind.ends_with("/snapshot")))
        .filter_map(|path| path.parent())
        .collect();
    folders.dedup();
    for folder in folders {
        let of_folder =
            files.keys().filter(|path| path.parent() == Some(folder) && !path.ends_with("latest"));
        let newest: Vec<_> = of_folder.rev().take(2).collect();
        for way in [Way::Bit, Way::Truncate, Way::Zeros, Way::Delete] {
            for path in &newest {
                let mut damaged: Files = [((*path).clone(), files[*path].clone())].into();
                damage(&rng, &mut damaged, path, way);
                store(&world, path, damaged.get(*path));
            }
            let result = check(&world, &want, &mut tally);
            assert_eq!(result, Ok(()), "{} {way:?}", folder.display());
            newest.iter().for_each(|path| store(&world, path, Some(&files[*path])));
        }
    }
    assert!(tally.refused > 0);
}

/// A start on an empty directory took a damaged snapshot for a tenant without databases: names were unknown
/// until the next start, and CREATE DATABASE made a new store over the bucket's.
#[test]
fn an_empty_data_directory_waits_for_damaged_databases_and_heals() {
    let world = World::new(43);
    fill(&world);
    let mut files = Files::new();
    collect(&world.machine.disk, Path::new(BUCKET), &mut files);
    let of_databases = |path: &&Path| path.display().to_string().contains("/databases/0");
    let newest = files.keys().map(AsRef::as_ref).rfind(of_databases).expect("a snapshot");
    let rng = Rng::from_seed(43);
    for (life, way) in (0..).zip(WAYS) {
        let mut damaged: Files = [(newest.to_owned(), files[newest].clone())].into();
        damage(&rng, &mut damaged, newest, way);
        store(&world, newest, damaged.get(newest));
        let tsdb = world.open(&format!("/empty-{life}"));
        let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
        let asked = dump(&tsdb.reader().queryable(&anonymous()), &ctx, &mut Answers::new());
        let text = asked.expect_err("databases that cannot be read").to_string();
        assert!(text.contains("databases/0"), "{way:?}: {text}");
        tsdb.bucket_jobs().upload_blocks();
        assert!(!tsdb.databases().are_known(&anonymous()), "{way:?}");
        store(&world, newest, Some(&files[newest]));
        let mut answers = Answers::new();
        dump(&tsdb.reader().queryable(&anonymous()), &ctx, &mut answers).expect("an answer");
        assert!(answers.iter().any(|line| line.contains("a.b")) && tsdb.databases().are_known(&anonymous()));
    }
}
