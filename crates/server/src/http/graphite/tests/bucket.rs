//! `/render` of points that only a bucket has: answers of before, from the roll-ups of their blocks.

use std::path::{Path, PathBuf};

use chronolith_base::Env;

use super::*;
use crate::http::tests::partial::{bucket_options, sources, uploading};
use crate::web::Web;

const LONG_SCHEMAS: &str = "[long]\npattern = ^long\\.\nretentions = 10s:1d,10m:30d\n";
const RENDER: &str = "/render?target=long.*&from=1699800000&until=1700000000&now=1700000000&format=json";

/// Rules for the options of a server over the disk of `env`.
fn set_rules(options: &mut ServerOptions, env: &Env) {
    env.disk.create_dir_all(Path::new("/rules")).expect("created");
    let file = env.disk.create(Path::new("/rules/schemas.conf")).expect("created");
    file.write_at(LONG_SCHEMAS.as_bytes(), 0).expect("written");
    options.service.write.carbon.rules.schemas = Some("/rules/schemas.conf".into());
}

/// Windows of roll-ups and samples that a request read.
fn counts_of(answer: &serde_json::Value) -> [i64; 2] {
    ["rolled-up-points", "raw-points"].map(|name| {
        let path = format!("/meta/stats/executeplan.{name}.count");
        answer.pointer(&path).and_then(serde_json::Value::as_i64).unwrap_or(-1)
    })
}

/// A bucket with the points of two series and their roll-ups, and the answer of the server that had them.
struct Bucket {
    env: Env,
    before: serde_json::Value,
}

impl Bucket {
    async fn new() -> Bucket {
        let (env, clock, _) = Env::fake(crate::http::tests::NOW_MS, 1);
        env.disk.create_dir_all(Path::new("/bucket")).expect("a directory");
        let mut options = bucket_options();
        options.is_read_only = false;
        options.local_retention = std::time::Duration::from_secs(1);
        let (server, store) = uploading(&env, &options, |options| set_rules(options, &env));
        let mut lines = String::new();
        for (idx, time) in (1_699_900_000..1_700_000_000).step_by(10).enumerate() {
            lines.push_str(&format!("long.a {} {time}\nlong.b {} {time}\n", idx * 7919 % 1000, idx % 17));
        }
        let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
        assert_eq!(answer.status.as_u16(), 204, "{}", answer.text);
        let before = server.get(RENDER).await.json();
        assert_eq!(before.as_array().map(Vec::len), Some(2), "{before}");
        let moved = tokio::task::spawn_blocking(move || {
            clock.advance(std::time::Duration::from_hours(12));
            store.maintenance().flush_closed(crate::http::tests::NOW_MS + 86_400_000).expect("flushes");
            for _ in 0..40 {
                store.maintenance().run();
                store.bucket_jobs().upload_blocks();
                clock.advance(std::time::Duration::from_mins(1));
            }
            store.statistics().stats().blocks
        });
        assert_eq!(moved.await.expect("no panic"), 0, "local blocks");
        assert_eq!(server.get(RENDER).await.json(), before, "the server that has uploaded them");
        Bucket { env, before }
    }

    /// A server that only reads, and has read nothing yet.
    fn reader(&self) -> Fixture {
        let mut options = ServerOptions::new("/data".into());
        set_rules(&mut options, &self.env);
        let reader = Fixture::new(std::sync::Arc::new(Web::new(self.env.clone(), options, None)));
        reader.web.service.read_rules().expect("valid");
        let bucket = sources(&self.env, &bucket_options());
        reader.web.service.set_bucket(bucket.clone());
        reader.web.service.lifecycle.set_sources(bucket);
        reader
    }

    /// Objects with roll-ups.
    fn rollups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![PathBuf::from("/bucket")];
        while let Some(dir) = dirs.pop() {
            for entry in self.env.disk.list(&dir).expect("a list") {
                let path = dir.join(&entry.name);
                if entry.is_dir {
                    dirs.push(path);
                } else if dir.ends_with("rollups") {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    fn replace(&self, object: &Path, bytes: &[u8]) {
        self.env.disk.create(object).expect("a file").write_at(bytes, 0).expect("written");
    }
}

#[tokio::test]
async fn a_read_only_server_renders_the_rollups_of_the_bucket() {
    let bucket = Bucket::new().await;
    let reader = bucket.reader();
    assert_eq!(reader.get(RENDER).await.json(), bucket.before, "a read-only server");
    let found = reader.get(&format!("{RENDER}&meta=true")).await.json();
    let [rolled_up, raw] = counts_of(&found);
    assert!(rolled_up > 200 && (0..rolled_up * 5).contains(&raw), "{rolled_up} windows, {raw} samples");
    let found = reader.get("/metrics/find?query=long.*").await.json();
    assert_eq!(found.as_array().map(Vec::len), Some(2), "{found}");
}

/// Checks that an object with roll-ups that has wrong bytes, ends early or is gone costs samples, and changes
/// no answer.
#[tokio::test]
async fn damaged_rollups_of_the_bucket_change_no_answer() {
    let bucket = Bucket::new().await;
    let objects = bucket.rollups();
    assert!(objects.len() > 1, "{objects:?}");
    let mut raw_counts = Vec::new();
    for object in &objects {
        let whole = bucket.env.disk.read(object).expect("an object");
        let flips = (0..whole.len()).step_by(whole.len() / 24 + 1).map(|at| {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            (format!("a bit of byte {at}"), flipped)
        });
        let cuts = [0, 15, whole.len() / 2, whole.len() - 1]
            .map(|len| (format!("cut to {len}"), whole[..len].to_vec()));
        for (damage, bytes) in flips.chain(cuts) {
            bucket.replace(object, &bytes);
            let found = bucket.reader().get(&format!("{RENDER}&meta=true")).await.json();
            let what = || format!("{}: {damage}", object.display());
            assert_eq!(bucket.reader().get(RENDER).await.json(), bucket.before, "{}", what());
            raw_counts.push(counts_of(&found)[1]);
        }
        bucket.env.disk.remove_file(object).expect("removed");
        assert_eq!(bucket.reader().get(RENDER).await.json(), bucket.before, "{} is gone", object.display());
        bucket.replace(object, &whole);
    }
    let found = bucket.reader().get(&format!("{RENDER}&meta=true")).await.json();
    let undamaged = counts_of(&found)[1];
    assert!(raw_counts.iter().all(|count| *count >= undamaged), "{undamaged} without damage: {raw_counts:?}");
    let affected_count = raw_counts.iter().filter(|count| **count > undamaged).count();
    assert!(
        affected_count * 2 > raw_counts.len(),
        "{affected_count} of {} damages were noticed",
        raw_counts.len()
    );
}
