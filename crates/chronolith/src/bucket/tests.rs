//! Tools over buckets in directories: text and JSON of each, marks, damage, missing objects, wrong names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronolith_block::{Block, BlockSource, BlockWriter};
use chronolith_bucket::snapshots::{Change, Snapshots};
use chronolith_bucket::{Purpose, RequestContext, Store, StoreConfig};
use chronolith_format::block::meta::BlockMeta;
use chronolith_format::bucket::catalogue::{DeletionMark, Snapshot};
use chronolith_model::{BlockEncoding, Labels, TenantId, TimeRange};
use serde_json::Value;
use tempfile::TempDir;

use super::*;

const HOUR_MS: i64 = 3_600_000;

/// A bucket in a directory with blocks of tenant `a`.
struct Fixture {
    dir: TempDir,
    env: Env,
    blocks: Vec<BlockMeta>,
}

impl Fixture {
    /// Two blocks of two hours each with 3 series of 240 samples.
    fn new() -> Fixture {
        let (dir, env) = (tempfile::tempdir().unwrap(), Env::real());
        env.disk.create_dir_all(&dir.path().join("a")).unwrap();
        let write = |number: i64| {
            let range = TimeRange::new(number * 2 * HOUR_MS, (number + 1) * 2 * HOUR_MS);
            let mut writer = BlockWriter::create(&env, &dir.path().join("a"))
                .unwrap()
                .with_encoding(BlockEncoding::Prometheus);
            for pod in ["x", "y", "z"] {
                let times: Vec<i64> = (0..240).map(|k| range.start + k * 30_000).collect();
                let values: Vec<f64> = (0..240).map(|k| f64::from(k) * 0.1).collect();
                let labels = Labels::from_pairs([("__name__", "m"), ("pod", pod)]);
                writer.add_samples(&labels, &times, &values).unwrap();
            }
            writer.finish(BlockSource::head(range)).unwrap().unwrap()
        };
        let mut blocks = vec![write(1), write(2)];
        blocks.sort_by_key(|meta| meta.ulid);
        Fixture { dir, env, blocks }
    }

    fn path(&self, block_idx: usize, name: &str) -> PathBuf {
        self.dir.path().join("a").join(self.blocks[block_idx].ulid.to_string()).join(name)
    }

    fn ulid(&self, block_idx: usize) -> String {
        self.blocks[block_idx].ulid.to_string()
    }

    fn write(&self, path: &Path, bytes: &[u8]) {
        self.env.disk.create_dir_all(path.parent().unwrap()).unwrap();
        self.env.disk.write_atomic(path, bytes).unwrap();
    }

    fn mark(&self, block_idx: usize) {
        let name = format!("a/markers/{}-deletion-mark.json", self.ulid(block_idx));
        self.write(&self.dir.path().join(name), b"{}");
    }

    /// Runs a tool with `--bucket`.
    fn run(&self, tool: &str, args: &[&str]) -> anyhow::Result<Outcome> {
        let url = format!("file://{}", self.dir.path().display());
        let given = ["bucket", tool, "--bucket", &url];
        let matches = command().try_get_matches_from(given.iter().chain(args))?;
        outcome_of(&self.env, &matches)
    }

    fn text(&self, tool: &str, args: &[&str]) -> String {
        self.run(tool, args).unwrap().text
    }

    fn json(&self, tool: &str, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(tool, &[args, &["--json"]].concat())).unwrap()
    }

    #[track_caller]
    fn check_error(&self, tool: &str, args: &[&str], want: &str) {
        let error = self.run(tool, args).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error.contains(want), "{error:?} has no {want:?}");
    }
}

#[test]
fn ls_lists_tenants_and_blocks() {
    let bucket = Fixture::new();
    assert_eq!(bucket.text("ls", &[]), "a  2 blocks\n1 tenants, 2 blocks\n");
    assert_eq!(bucket.json("ls", &[])["tenants"][0]["blocks"], 2);
    bucket.mark(0);
    bucket.env.disk.remove_file(&bucket.path(1, "meta.json")).unwrap();
    let text = bucket.text("ls", &["--tenant", "a"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("3 series, 720 samples, "), "{text}");
    assert!(lines[0].ends_with("level 1, 1 sources, deletion mark; left out: marked for deletion"), "{text}");
    assert!(lines[1].ends_with("left out: incomplete: it has no meta.json"), "{text}");
    assert!(lines[2].starts_with("2 blocks, 2 of them left out: 3 series, 720 samples"), "{text}");
    let json = bucket.json("ls", &["--tenant", "a"]);
    assert_eq!(json["blocks"][0]["minTime"], bucket.blocks[0].min_time);
    assert_eq!(json["blocks"][0]["deletionMark"], true);
    assert_eq!(json["totals"]["leftOut"], 2);
}

#[test]
fn inspect_shows_objects_and_thanos_section() {
    let bucket = Fixture::new();
    let ulid = bucket.ulid(0);
    let meta = bucket.env.disk.read(&bucket.path(0, "meta.json")).unwrap();
    let mut meta: Value = serde_json::from_slice(&meta).unwrap();
    meta["thanos"] = serde_json::json!({ "version": 1, "labels": { "dc": "b" },
        "downsample": { "resolution": 300_000 }, "source": "compactor" });
    bucket.write(&bucket.path(0, "meta.json"), meta.to_string().as_bytes());
    let text = bucket.text("inspect", &["--tenant", "a", &ulid]);
    for want in [
        "series: 3\n",
        "thanos labels: {dc=\"b\"}\n",
        "left out: downsampled by Thanos to 300000 ms\n",
        "object: chunks/000001 ",
        "object: index ",
    ] {
        assert!(text.contains(want), "{text} has no {want}");
    }
    let json = bucket.json("inspect", &["--tenant", "a", &ulid]);
    assert_eq!(json["objects"][0]["name"], "chunks/000001");
    assert_eq!(json["thanos"]["resolution"], 300_000);
    bucket.check_error("inspect", &["--tenant", "b", &ulid], "no objects of block b/");
}

#[test]
fn verify_names_damage() {
    let bucket = Fixture::new();
    let sound = bucket.run("verify", &[]).unwrap();
    assert!(
        sound.is_sound && sound.text.starts_with("verified 2 blocks with 1440 samples, "),
        "{}",
        sound.text
    );
    let segment = bucket.path(0, "chunks/000001");
    let mut bytes = bucket.env.disk.read(&segment).unwrap();
    bytes[40] ^= 1;
    bucket.write(&segment, &bytes);
    bucket.env.disk.remove_file(&bucket.path(1, "index")).unwrap();
    let damaged = bucket.run("verify", &["--tenant", "a"]).unwrap();
    assert!(!damaged.is_sound);
    let (first, second) = (bucket.ulid(0), bucket.ulid(1));
    assert!(
        damaged.text.contains(&format!("damaged: a/{first}/chunks/000001: offset 8: ")),
        "{}",
        damaged.text
    );
    let want = format!("damaged: a/{second}/index: offset 0: object is missing\n");
    assert!(damaged.text.contains(&want), "{}", damaged.text);
    let json = bucket.json("verify", &["--tenant", "a", &second]);
    assert_eq!(json["damages"][0]["object"], format!("a/{second}/index"));
    assert_eq!(json["blocks"], 1);
}

#[test]
fn verify_skips_blocks_that_are_being_uploaded_or_deleted() {
    let bucket = Fixture::new();
    bucket.mark(0);
    bucket.env.disk.remove_file(&bucket.path(1, "meta.json")).unwrap();
    let outcome = bucket.run("verify", &[]).unwrap();
    assert!(outcome.is_sound, "{}", outcome.text);
    assert_eq!(outcome.text.matches("not verified: a/").count(), 2, "{}", outcome.text);
    let named = bucket.run("verify", &["--tenant", "a", &bucket.ulid(1)]).unwrap();
    assert!(!named.is_sound, "a named block without meta.json is damaged: {}", named.text);
}

#[test]
fn verify_removes_its_copies() {
    let (bucket, work_dir) = (Fixture::new(), tempfile::tempdir().unwrap());
    let path = work_dir.path().to_str().unwrap();
    assert!(bucket.run("verify", &["--work-dir", path]).unwrap().is_sound);
    assert_eq!(bucket.env.disk.list(work_dir.path()).unwrap().len(), 0);
}

#[test]
fn download_brings_blocks_that_promtool_reads() {
    let (bucket, out) = (Fixture::new(), tempfile::tempdir().unwrap());
    let dir = out.path().to_str().unwrap();
    let text = bucket.text("download", &["--tenant", "a", dir]);
    assert!(text.starts_with("downloaded 2 blocks to ") && text.contains(", 0 were there"), "{text}");
    for meta in &bucket.blocks {
        let block = Block::open(&bucket.env, &out.path().join(meta.ulid.to_string())).unwrap();
        assert_eq!(block.verify(), []);
    }
    assert_eq!(bucket.json("download", &["--tenant", "a", dir])["present"], 2);
    bucket.env.disk.create_dir_all(&out.path().join("wal")).unwrap();
    match std::process::Command::new("promtool").args(["tsdb", "dump", dir]).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1440);
        }
        Err(_) => println!("NOT RUN: promtool missing"),
    }
}

#[test]
fn download_goes_on_where_it_ended() {
    let (bucket, out) = (Fixture::new(), tempfile::tempdir().unwrap());
    let (dir, ulid) = (out.path().to_str().unwrap(), bucket.ulid(0));
    let partial = out.path().join(format!("{ulid}.tmp-for-creation"));
    let kept = bucket.env.disk.read(&bucket.path(0, "index")).unwrap();
    // Other bytes of the same length, which show that the file was kept.
    bucket.write(&partial.join("index"), &vec![7; kept.len()]);
    bucket.write(&partial.join("chunks/000001"), b"too short");
    bucket.text("download", &["--tenant", "a", &ulid, dir]);
    let file = |name: &str| bucket.env.disk.read(&out.path().join(&ulid).join(name)).unwrap();
    assert_eq!(file("index"), vec![7; kept.len()]);
    assert_eq!(file("chunks/000001"), bucket.env.disk.read(&bucket.path(0, "chunks/000001")).unwrap());
    assert!(!bucket.env.disk.exists(&partial));
}

#[test]
fn download_chooses_by_time_and_mark() {
    let bucket = Fixture::new();
    let early = bucket.blocks.iter().position(|meta| meta.min_time == 2 * HOUR_MS).unwrap();
    let names = |args: &[&str]| {
        let out = tempfile::tempdir().unwrap();
        let dir = out.path().to_str().unwrap();
        let json = bucket.json("download", &[&["--tenant", "a"], args, &[dir]].concat());
        json["blocks"].as_array().unwrap().iter().map(|b| b.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--max-time", "14399999"]), [bucket.ulid(early)]);
    assert_eq!(names(&["--min-time", "14400000"]), [bucket.ulid(1 - early)]);
    bucket.mark(early);
    assert_eq!(names(&[]), [bucket.ulid(1 - early)]);
    assert_eq!(names(&[&bucket.ulid(early)]), [bucket.ulid(early)], "named, so downloaded although marked");
}

#[test]
fn upload_records_blocks_and_goes_on() {
    let (local, bucket) = (Fixture::new(), Fixture::new());
    let dir = local.dir.path().join("a");
    let dir = dir.to_str().unwrap();
    let first = bucket.json("upload", &["--tenant", "b", &format!("{dir}/{}", local.ulid(0))]);
    assert_eq!(first["blocks"][0]["end"], "recorded");
    let all = bucket.json("upload", &["--tenant", "b", dir]);
    assert_eq!(all["blocks"].as_array().unwrap().len(), 2);
    assert_eq!(all["presentBytes"], first["sentBytes"], "the first block is not sent again");
    let again = bucket.text("upload", &["--tenant", "b", dir]);
    assert!(again.contains("uploaded 2 blocks: 0 bytes sent, "), "{again}");

    let text = bucket.text("ls", &["--tenant", "b"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("level 1, 1 sources, in the catalogue"), "{text}");
    assert!(
        lines[3].starts_with("catalogue 2 of ") && lines[3].ends_with("2 blocks, 0 deletion marks"),
        "{text}"
    );
    let json = bucket.json("ls", &["--tenant", "b"]);
    assert_eq!((&json["catalogue"]["number"], &json["blocks"][1]["inCatalogue"]), (&2.into(), &true.into()));
    let inspected = bucket.text("inspect", &["--tenant", "b", &local.ulid(0)]);
    assert!(inspected.contains("in the catalogue: uploaded at "), "{inspected}");
    assert!(inspected.contains("thanos source: chronolith\n"), "{inspected}");
    assert!(bucket.run("verify", &["--tenant", "b"]).unwrap().is_sound);
    let out = tempfile::tempdir().unwrap();
    bucket.text("download", &["--tenant", "b", out.path().to_str().unwrap()]);
    for meta in &local.blocks {
        let block = Block::open(&local.env, &out.path().join(meta.ulid.to_string())).unwrap();
        assert_eq!((block.verify(), block.meta().stats.num_samples), (vec![], 720));
    }
}

#[test]
fn upload_does_not_hide_blocks_without_a_catalogue() {
    let (local, bucket) = (Fixture::new(), Fixture::new());
    let dir = local.dir.path().join("a");
    let dir = dir.to_str().unwrap();
    let text = bucket.text("upload", &["--tenant", "a", "--files-only", dir]);
    assert!(text.contains(": uploaded\n"), "{text}");
    let listed = bucket.json("ls", &["--tenant", "a"]);
    assert_eq!((&listed["totals"]["blocks"], listed["catalogue"].is_null()), (&4.into(), true));
    bucket.text("upload", &["--tenant", "a", dir]);
    let text = bucket.text("ls", &["--tenant", "a"]);
    assert!(text.contains("4 blocks, 0 deletion marks"), "{text}");
    bucket.text("upload", &["--tenant", "b", dir]);
    let ulid = bucket.ulid(0);
    bucket.write(&bucket.dir.path().join(format!("b/{ulid}/index")), b"junk");
    let json = bucket.json("inspect", &["--tenant", "b", &ulid]);
    assert_eq!(json["leftOut"], "not in the catalogue");
    bucket.check_error("upload", &["--tenant", "b", &format!("{dir}/none")], "none");
    bucket.check_error(
        "upload",
        &["--tenant", "b", local.dir.path().to_str().unwrap()],
        "is no block and has none",
    );
}

#[test]
fn copy_brings_blocks_to_another_tenant_and_bucket() {
    let (bucket, other) = (Fixture::new(), tempfile::tempdir().unwrap());
    bucket.mark(0);
    let copied = bucket.json("copy", &["--tenant", "a", "--to-tenant", "b"]);
    assert_eq!(copied["blocks"], serde_json::json!([{ "ulid": bucket.ulid(1), "end": "recorded" }]));
    let again = bucket.text("copy", &["--tenant", "a", "--to-tenant", "b"]);
    assert!(again.contains("uploaded 1 blocks: 0 bytes sent, "), "{again}");
    assert!(bucket.run("verify", &["--tenant", "b"]).unwrap().is_sound);

    let url = format!("file://{}", other.path().display());
    bucket.text("copy", &["--tenant", "a", "--to", &url, &bucket.ulid(0), &bucket.ulid(1)]);
    for idx in 0..2 {
        let block = Block::open(&bucket.env, &other.path().join("a").join(bucket.ulid(idx))).unwrap();
        assert_eq!((block.verify(), block.meta().stats.num_samples), (vec![], 720));
    }
    bucket.check_error("copy", &["--tenant", "a"], "expected --to or --to-tenant");
}

/// `upload` made a folder with the name of a store, and no server read it.
#[test]
fn a_store_of_a_data_directory_is_no_tenant_of_a_bucket() {
    let bucket = Fixture::new();
    let dir = bucket.dir.path().join("a");
    let dir = dir.to_str().unwrap();
    for name in ["__ns-0000000000000000", "__ns-00000000000000ff", "__ms-0000000000000001", "__ns-", "__x"] {
        let with = ["--tenant", name];
        for command in ["ls", "verify"] {
            bucket.check_error(command, &with, &format!("--tenant {name}"));
        }
        bucket.check_error("upload", &["--tenant", name, dir], &format!("--tenant {name}"));
        bucket.check_error("copy", &["--tenant", "a", "--to-tenant", name], &format!("--to-tenant {name}"));
        assert!(!bucket.dir.path().join(name).exists(), "{name}");
    }
}

#[test]
fn gc_removes_marked_blocks_after_the_delay_and_keeps_those_of_others() {
    let (local, bucket) = (Fixture::new(), Fixture::new());
    let dir = local.dir.path().join("a");
    bucket.text("upload", &["--tenant", "b", dir.to_str().unwrap()]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = format!("file://{}", bucket.dir.path().display());
    let store = Store::open(&StoreConfig::new(&url), &bucket.env, runtime.handle().clone()).unwrap();
    let snapshots = Snapshots::new(Arc::new(store), &bucket.env);
    let tenant = TenantId::new("b").unwrap();
    let timeout = Duration::from_secs(60);
    let request = RequestContext::with_timeout(&*bucket.env.clock, tenant, timeout, Purpose::Tool);
    let retire = |snapshot: &mut Snapshot| {
        let ulid = snapshot.blocks.remove(0).ulid;
        snapshot.deletion_marks.push(DeletionMark { ulid, marked_ms: bucket.env.clock.now_ms() });
        Change::Write
    };
    runtime.block_on(snapshots.update(&request, retire)).unwrap();
    let foreign = bucket.dir.path().join("b").join(bucket.ulid(0)).join("meta.json");
    bucket.write(&foreign, b"{}");
    let marked = bucket.dir.path().join("b").join(local.ulid(0)).join("index");

    let early = bucket.text("gc", &[]);
    assert!(early.contains("b: 1 blocks of other programs"), "{early}");
    assert!(early.ends_with("2 tenants, 0 blocks removed, 0 bytes\n"), "{early}");
    let dry = bucket.json("gc", &["--tenant", "b", "--dry-run", "--delete-delay", "0s"]);
    assert_eq!(dry["tenants"][0]["blocks"][0]["ulid"], local.ulid(0));
    assert_eq!((&dry["dryRun"], &dry["tenants"][0]["blocks"][0]["objects"]), (&true.into(), &3.into()));
    assert!(bucket.env.disk.exists(&marked), "a dry run removes nothing");
    let done = bucket.json("gc", &["--delete-delay", "0s", "--unreferenced"]);
    assert_eq!(done["tenants"][1]["blocks"].as_array().unwrap().len(), 1);
    assert_eq!(done["tenants"][1]["leftovers"], serde_json::json!([]), "too young");
    assert!(!bucket.env.disk.exists(&marked) && bucket.env.disk.exists(&foreign));
    let again = bucket.text("gc", &["--tenant", "b", "--delete-delay", "0s"]);
    assert!(again.ends_with("1 tenants, 0 blocks removed, 0 bytes\n"), "{again}");
    bucket.check_error("gc", &["--delete-delay", "soon"], "expected a duration such as 12h");
}

#[test]
fn tools_know_the_layout_of_thanos() {
    let (local, bucket) = (Fixture::new(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", bucket.path().display());
    let run = |tool: &str, args: &[&str]| {
        let given = ["bucket", tool, "--bucket", &url, "--bucket.layout", "thanos"];
        let matches = command().try_get_matches_from(given.iter().chain(args)).unwrap();
        outcome_of(&local.env, &matches)
    };
    let text = |tool: &str, args: &[&str]| run(tool, args).unwrap().text;
    let refused = |tool: &str, args: &[&str], want: &str| {
        let error = run(tool, args).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error.contains(want), "{tool}: {error:?} has no {want:?}");
    };
    let dir = local.dir.path().join("a");
    let dir = dir.to_str().unwrap();
    let (eu, us) = (["--bucket.external-labels", "c=\"eu\""], ["--bucket.external-labels", "c=\"us\""]);
    let ulid = local.ulid(0);
    let sent = text("upload", &[eu[0], eu[1], dir]);
    assert!(sent.starts_with(&format!("{ulid}: recorded\n")), "{sent}");
    assert!(text("upload", &[eu[0], eu[1], dir]).contains("uploaded 2 blocks: 0 bytes sent, "));
    refused("upload", &[us[0], us[1], dir], "a server with other external labels than {c=\"us\"}");
    refused("upload", &[dir], "--bucket.external-labels: expected those of the server");

    assert!(text("ls", &[]).starts_with(&format!("{ulid} ")), "a process that reads");
    assert!(text("ls", &[]).contains("2 blocks, 0 of them left out: 6 series, 1440 samples"));
    assert!(text("ls", &eu).contains("level 1, 1 sources, in the catalogue\n"), "{}", text("ls", &eu));
    let inspected = text("inspect", &[eu[0], eu[1], &ulid]);
    for line in ["thanos labels: {c=\"eu\"}\n", "thanos source: chronolith\n", "in the catalogue: "] {
        assert!(inspected.contains(line), "{inspected}");
    }
    let verified = run("verify", &[]).unwrap();
    assert!(verified.is_sound && verified.text.contains("verified 2 blocks with 1440 samples"));
    let out = tempfile::tempdir().unwrap();
    text("download", &[out.path().to_str().unwrap()]);
    for idx in 0..2 {
        let block = Block::open(&local.env, &out.path().join(local.ulid(idx))).unwrap();
        assert_eq!((block.verify(), block.meta().stats.num_samples), (vec![], 720));
    }
    assert!(text("gc", &eu).ends_with("1 tenants, 0 blocks removed, 0 bytes\n"));
    let of_us = text("gc", &us);
    assert!(of_us.ends_with("1 tenants, 0 blocks removed, 0 bytes\n"), "{of_us}");
    refused("gc", &[], "--bucket.external-labels: expected those of the server");
    refused("gc", &[eu[0], eu[1], "--unreferenced"], "blocks of other writers");
    refused("copy", &[eu[0], eu[1], "--to", "file:///x"], "copy works in the layout mimir");
    refused("ls", &["--tenant", "a"], "the layout thanos has no tenants");
}

#[test]
fn errors_name_what_to_do() {
    let (bucket, out) = (Fixture::new(), tempfile::tempdir().unwrap());
    let (dir, ulid) = (out.path().to_str().unwrap(), bucket.ulid(0));
    bucket.check_error("ls", &["--tenant", "a/b"], "--tenant a/b: tenant id has the character");
    bucket.check_error("verify", &["--tenant", "a", "nonsense"], "\"nonsense\" is no ULID");
    bucket.write(&out.path().join(&ulid).join("index"), b"other");
    bucket.check_error("download", &["--tenant", "a", dir], "move the directory away");
    let open = |url: &str| {
        let matches = command().try_get_matches_from(["bucket", "ls", "--bucket", url]).unwrap();
        outcome_of(&bucket.env, &matches).err().map(|error| format!("{error:#}")).unwrap_or_default()
    };
    assert!(open("ftp://x").contains("opening the bucket; docs/bucket.md"), "{}", open("ftp://x"));
    assert!(open("").contains("expected the URL of a bucket"), "{}", open(""));
}

impl Fixture {
    /// A bucket with the blocks of tenant `a` of this one, uploaded to tenant `b` with a catalogue.
    fn catalogued() -> (Fixture, Fixture) {
        let (bucket, local) = (Fixture::new(), Fixture::new());
        let blocks = local.dir.path().join("a").display().to_string();
        bucket.run("upload", &["--tenant", "b", &blocks]).unwrap();
        (bucket, local)
    }

    /// Names of the objects in a folder.
    fn names(&self, folder: &str) -> Vec<String> {
        let listed = self.env.disk.list(&self.dir.path().join(folder)).unwrap();
        listed.into_iter().map(|entry| entry.name).collect()
    }

    /// Damages the newest snapshot in a folder, and returns its path.
    fn damage_newest(&self, folder: &str, change: impl Fn(&mut Vec<u8>)) -> PathBuf {
        let mut names = self.names(folder);
        names.retain(|name| name != "latest");
        let path = self.dir.path().join(folder).join(names.iter().max().unwrap());
        let mut bytes = self.env.disk.read(&path).unwrap();
        change(&mut bytes);
        self.write(&path, &bytes);
        path
    }
}

/// Change of the bytes of an object.
type Damage = Box<dyn Fn(&mut Vec<u8>)>;

#[test]
fn repair_makes_a_damaged_catalogue_again() {
    let flip = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 0x10;
    let damages: [Damage; 7] = [
        Box::new(flip(0)),
        Box::new(flip(9)),
        Box::new(flip(60)),
        Box::new(|bytes| bytes.truncate(40)),
        Box::new(Vec::clear),
        Box::new(|bytes| bytes.fill(0)),
        Box::new(|bytes| bytes.push(1)),
    ];
    for damage in damages {
        let (bucket, _local) = Fixture::catalogued();
        let tenant = ["--tenant", "b"];
        // The last line has the number of the snapshot.
        let blocks = || bucket.text("ls", &tenant).split("\ncatalogue").next().map(str::to_owned);
        let before = blocks();
        assert_eq!(
            bucket.text("repair", &tenant),
            "2 lists of snapshots, 0 to repair (--write), 0 not repaired\n"
        );
        let newest = bucket.damage_newest("b/catalog", damage);
        bucket.check_error("ls", &tenant, "catalogue snapshot");
        let names = bucket.names("b/catalog");
        let dry = bucket.run("repair", &tenant).unwrap();
        assert!(dry.is_sound && dry.text.contains(" damaged; to write: snapshot "), "{}", dry.text);
        assert!(
            dry.text.ends_with("2 lists of snapshots, 1 to repair (--write), 0 not repaired\n"),
            "{}",
            dry.text
        );
        assert_eq!(bucket.names("b/catalog"), names, "a dry run writes nothing");
        let done = bucket.json("repair", &["--tenant", "b", "--write"]);
        let states: Vec<&Value> =
            done["snapshots"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
        assert_eq!((&done["written"], states), (&true.into(), vec![&"sound".into(), &"repaired".into()]));
        assert!(bucket.env.disk.exists(&newest), "nothing is removed");
        assert_eq!(blocks(), before);
        assert!(bucket.text("repair", &tenant).contains(" 0 to repair"), "a second run has nothing to do");
    }
}

#[test]
fn repair_waits_for_the_lease_and_makes_the_hint_again() {
    let (bucket, _local) = Fixture::catalogued();
    bucket.write(&bucket.dir.path().join("b/catalog/latest"), b"junk");
    let hint = bucket.text("repair", &["--tenant", "b", "--write"]);
    assert!(hint.starts_with("b/catalog/latest: damaged; written: the number "), "{hint}");
    bucket.damage_newest("b/catalog", |bytes| bytes[3] ^= 1);
    let lease = |text: &str, number: u64| {
        bucket.write(&bucket.dir.path().join(format!("b/lease/{number:020}")), text.as_bytes());
    };
    lease("holder=00000000000000aa duration_ms=7200000\n", 1);
    let write = ["--tenant", "b", "--write"];
    bucket.check_error("repair", &write, "the lease b/lease/00000000000000000001 was not released");
    assert!(bucket.text("repair", &["--tenant", "b"]).contains(" 1 to repair"), "a dry run needs no lease");
    lease("junk", 2);
    bucket.check_error("repair", &write, "b/lease/00000000000000000002");
    assert!(bucket.text("repair", &[&write[..], &["--ignore-lease"]].concat()).contains(" 1 repaired"));
    bucket.damage_newest("b/catalog", |bytes| bytes[3] ^= 1);
    lease("holder=00000000000000aa duration_ms=0\n", 3);
    assert!(bucket.text("repair", &write).contains(" 1 repaired"), "it was released");
}

#[test]
fn repair_names_what_it_cannot_make_again() {
    let (bucket, local) = Fixture::catalogued();
    for number in [1, 2] {
        bucket.write(&bucket.dir.path().join(format!("b/databases/{number:020}")), b"junk");
    }
    let newest = bucket.damage_newest("b/catalog", |bytes| bytes[3] ^= 1);
    let meta = bucket.dir.path().join("b").join(local.ulid(0)).join("meta.json");
    let text = bucket.env.disk.read(&meta).unwrap();
    // A block of no readable snapshot, whose meta.json is damaged: the catalogue would lack it.
    for entry in bucket.names("b/catalog").iter().filter(|name| *name != "latest") {
        bucket.write(&bucket.dir.path().join("b/catalog").join(entry), b"junk");
    }
    bucket.write(&meta, &text[..text.len() / 2]);
    let lost = bucket.run("repair", &["--tenant", "b", "--write"]).unwrap();
    assert!(!lost.is_sound, "exit code 1");
    assert!(
        lost.text.contains("b/databases/00000000000000000002: damaged; not repaired: no snapshot"),
        "{}",
        lost.text
    );
    assert!(lost.text.contains(&format!("b/{}/meta.json", local.ulid(0))), "{}", lost.text);
    assert!(lost.text.ends_with("0 repaired, 2 not repaired\n"), "{}", lost.text);
    bucket.write(&meta, &text);
    let done = bucket.run("repair", &["--tenant", "b", "--write"]).unwrap();
    assert!(
        done.text.contains("with 2 blocks: 0 of no snapshot, 0 with later deletions, 2 of their folders"),
        "{}",
        done.text
    );
    assert!(
        done.text.contains(&format!("  {}: recorded by its meta.json and objects", local.ulid(1))),
        "{}",
        done.text
    );
    assert!(bucket.env.disk.exists(&newest) && !done.is_sound, "the databases are still lost");
    assert!(bucket.text("ls", &["--tenant", "b"]).contains("2 blocks, 0 of them left out"));
}
