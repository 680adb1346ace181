//! Thanos's layout: keys and `meta.json` as Thanos documents them; writers with different external labels,
//! and other programs, in one bucket.

use std::path::Path;

use chronolith_block::Block;
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::bucket::catalogue::BlockFolder;
use chronolith_format::bucket::mimir::NO_COMPACT_MARK;
use chronolith_model::{BlockEncoding, LabelsBuilder, Matcher, Queryable, Selector, TimeRange};

use super::block_uploads::{Bench, ulid};
use super::maintenance::{clean, expire, find, remove};
use super::reading::{Answer, World, read_all, window};
use super::*;
use crate::error::BucketError;
use crate::external_labels::ExternalLabels;
use crate::lease::Leases;
use crate::maintenance::leftovers::LeftoverKind;
use crate::store::list::ListOptions;
use crate::store::read::ReadRange;
use crate::upload::{Published, Uploader};
use crate::{BlockCatalog, CatalogOptions};

const EU: &str = r#"replica="a",cluster="eu""#;
const US: &str = r#"cluster="us""#;

fn layout_of(labels: &str) -> BucketLayout {
    BucketLayout::Thanos { writer: Some(ExternalLabels::parse(labels).unwrap()) }
}

/// A server with these external labels.
fn server(backend: &Arc<InMemory>, labels: &str) -> Bench {
    Bench::in_layout(backend.clone(), FaultPlan::default(), layout_of(labels))
}

async fn keys(bench: &Bench) -> Vec<String> {
    let page = bench.rig.store.list(&bench.request(), &ListOptions::default()).await.unwrap();
    page.objects.into_iter().map(|object| object.key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_has_the_keys_and_the_meta_json_of_thanos() {
    let bench = server(&Arc::new(InMemory::new()), EU);
    bench.publish(1, &[]).await;
    let block = ulid(1);
    let want = [
        format!("{block}/chronolith.sidecar"),
        format!("{block}/chunks/000001"),
        format!("{block}/index"),
        format!("{block}/meta.json"),
        format!("{block}/no-compact-mark.json"),
        format!("{block}/tombstones"),
        "chronolith/cluster=eu,replica=a/catalog/00000000000000000001".to_owned(),
        "chronolith/cluster=eu,replica=a/catalog/latest".to_owned(),
    ];
    assert_eq!(keys(&bench).await, want);
    let meta = bench.object(&format!("{block}/meta.json")).await;
    let record = bench.latest().await.unwrap().blocks[0].clone();
    let upload_time = chronolith_base::utc::rfc3339_ms(record.uploaded_ms);
    let golden = format!(
        r#"{{
	"ulid": "{block}",
	"minTime": 1000,
	"maxTime": 1999,
	"stats": {{
		"numSeries": 3,
		"numTombstones": 1
	}},
	"compaction": {{
		"level": 1,
		"sources": [
			"{block}"
		]
	}},
	"version": 1,
	"thanos": {{
		"downsample": {{
			"resolution": 0
		}},
		"files": [
			{{
				"rel_path": "chunks/000001",
				"size_bytes": 4000
			}},
			{{
				"rel_path": "index",
				"size_bytes": 5000
			}},
			{{
				"rel_path": "meta.json"
			}}
		],
		"labels": {{
			"cluster": "eu",
			"replica": "a"
		}},
		"source": "chronolith",
		"upload_time": "{upload_time}",
		"version": 1
	}}
}}"#
    );
    assert_eq!(String::from_utf8(meta.to_vec()).unwrap().trim_end(), golden);
    assert_eq!(record.folder, BlockFolder::Thanos);
    bench.check_block(&record).await;
    assert_eq!(crate::tenants(&bench.rig.store, &bench.request()).await.unwrap(), [TenantId::anonymous()]);
}

/// Thanos dropped one of two blocks that a compaction had split: they have the same sources. Each is a source
/// of its own in its `meta.json`; the catalogue has the sources as they are.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_that_were_split_are_no_duplicates_for_thanos() {
    let bench = server(&Arc::new(InMemory::new()), EU);
    let dir = bench.block(3, &[1, 2], &[100]);
    let path = dir.join("meta.json");
    let mut meta = BlockMeta::decode(&bench.env.disk.read(&path).unwrap()).unwrap();
    meta.compaction.split_set = Some(ulid(3));
    meta.compaction.split_blocks = vec![ulid(3), ulid(4)];
    let mut text = Vec::new();
    meta.encode(&mut text);
    bench.env.disk.write_atomic(&path, &text).unwrap();
    let record = bench.uploader().upload(&bench.request(), &dir, Bench::sidecar(&dir)).await.unwrap();
    assert_eq!(record.ancestry.sources, [ulid(1), ulid(2)]);
    let text = bench.object(&format!("{}/meta.json", ulid(3))).await;
    let in_bucket = BlockMeta::decode(&text).unwrap();
    assert_eq!(in_bucket.compaction.sources, [ulid(1), ulid(2), ulid(3)]);
    assert_eq!(in_bucket.compaction.split_set, Some(ulid(3)));
}

/// Server `eu` has block 1, server `us` block 2, a sidecar of Thanos block 3; the uploads of 4 (`us`) and 5
/// (of Thanos) are not complete.
async fn shared() -> [Bench; 2] {
    let backend = Arc::new(InMemory::new());
    let servers = [EU, US].map(|labels| server(&backend, labels));
    let [eu, us] = &servers;
    eu.publish(1, &[]).await;
    us.publish(2, &[]).await;
    for n in [3, 4, 5] {
        let dir = us.block(n, &[], &[100]);
        us.uploader().upload(&us.request(), &dir, Bench::sidecar(&dir)).await.unwrap();
    }
    let meta = us.object(&format!("{}/meta.json", ulid(3))).await;
    let meta = String::from_utf8(meta.to_vec()).unwrap().replace("\"chronolith\"", "\"sidecar\"");
    us.rig.faults.inner_put(&format!("{}/meta.json", ulid(3)), meta.into()).await;
    for (n, name) in [
        (3, "no-compact-mark.json"),
        (3, "chronolith.sidecar"),
        (4, "meta.json"),
        (5, "meta.json"),
        (5, "no-compact-mark.json"),
    ] {
        us.rig.store.remove(&us.request(), &format!("{}/{name}", ulid(n))).await.unwrap();
    }
    servers
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_leaves_the_blocks_of_other_writers() {
    let [eu, us] = shared().await;
    let others = keys(&us).await.into_iter().filter(|key| !key.starts_with(&ulid(1).to_string()));
    let others: Vec<String> = others.filter(|key| !key.starts_with("chronolith/cluster=eu")).collect();
    let found = eu.at(1000, async |run| find(run, true).await).await.unwrap();
    assert!(found.folders.is_empty() && found.tombstones.is_empty(), "{found:?}");
    assert_eq!(found.foreign_count, 4);
    assert_eq!(eu.at(1000, expire).await.unwrap(), 1, "its own block");
    for hours in [1000, 1013, 1026] {
        eu.at(hours, clean).await.unwrap();
        eu.at(hours, remove).await.unwrap();
    }
    assert!(eu.names(1).await.is_empty());
    let left = keys(&us).await.into_iter().filter(|key| !key.starts_with("chronolith/cluster=eu"));
    assert_eq!(left.collect::<Vec<_>>(), others);
    us.check_live(&[2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_died_is_a_leftover_of_its_writer() {
    let [_, us] = shared().await;
    let found = us.at(49, async |run| find(run, false).await).await.unwrap();
    let kinds: Vec<_> = found.folders.iter().map(|folder| (folder.ulid, folder.kind)).collect();
    assert_eq!(kinds, [(ulid(4), LeftoverKind::Incomplete)]);
    assert_eq!(found.foreign_count, 3, "blocks 1, 3 and 5");
    for hours in [49, 62, 75] {
        us.at(hours, clean).await.unwrap();
        us.at(hours, remove).await.unwrap();
    }
    for (n, objects) in [(1, 6), (2, 6), (3, 4), (4, 0), (5, 4)] {
        assert_eq!(us.names(n).await.len(), objects, "block {n}");
    }
    assert!(us.marks().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_catalogue_has_the_own_blocks_alone() {
    let backend = Arc::new(InMemory::new());
    let [eu, us] = [EU, US].map(|labels| server(&backend, labels));
    for (bench, n) in [(&eu, 1), (&us, 2), (&us, 3)] {
        let dir = bench.block(n, &[], &[100]);
        bench.uploader().upload(&bench.request(), &dir, None).await.unwrap();
    }
    let mark = format!("{}/deletion-mark.json", ulid(3));
    us.rig.faults.inner_put(&mark, Bytes::from_static(b"{}")).await;
    assert_eq!(us.uploader().publisher().create_catalogue(&us.request()).await.unwrap(), 1);
    us.check_live(&[2]).await;
    assert!(eu.latest().await.is_none());
    assert_eq!(us.latest().await.unwrap().blocks[0].folder, BlockFolder::Thanos);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_others_have_begun_is_not_written() {
    let [eu, us] = shared().await;
    // The data directory of one server with the labels of another one, and a block of Thanos.
    for (bench, n) in [(&eu, 2), (&eu, 4), (&us, 3), (&us, 5)] {
        let dir = bench.block(n, &[], &[100]);
        let before = bench.names(n).await;
        let refused = bench.run(&bench.uploader(), &dir).await.unwrap_err();
        assert!(matches!(refused, BucketError::Refused { .. }), "block {n}: {refused}");
        assert_eq!(bench.names(n).await, before);
    }
    // The own folder is gone on with, without the mark as well.
    us.rig.store.remove(&us.request(), &format!("{}/{NO_COMPACT_MARK}", ulid(2))).await.unwrap();
    for n in [2, 4] {
        assert!(matches!(us.publish(n, &[]).await, Published::Recorded(_)));
    }
    us.check_live(&[2, 4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_with_other_external_labels_is_not_uploaded() {
    let bench = server(&Arc::new(InMemory::new()), EU);
    let dir = bench.block(1, &[], &[100]);
    let path = dir.join("meta.json");
    let text = String::from_utf8(bench.env.disk.read(&path).unwrap()).unwrap();
    let text =
        text.replace("\"version\": 1", "\"thanos\": {\"labels\": {\"cluster\": \"us\"}},\n\t\"version\": 1");
    bench.env.disk.write_atomic(&path, text.as_bytes()).unwrap();
    let refused = bench.run(&bench.uploader(), &dir).await.unwrap_err();
    assert!(
        refused.to_string().contains("external labels {cluster=\"us\"}, expected none or {"),
        "{refused}"
    );
    assert!(keys(&bench).await.is_empty());
    let layout = BucketLayout::Thanos { writer: None };
    let reader = Bench::in_layout(Arc::new(InMemory::new()), FaultPlan::default(), layout);
    let refused = reader.run(&reader.uploader(), &reader.block(1, &[], &[100])).await.unwrap_err();
    assert!(matches!(refused, BucketError::Config { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_have_leases_of_their_own() {
    let backend = Arc::new(InMemory::new());
    for labels in [EU, US] {
        let bench = server(&backend, labels);
        let leases = Leases::new(bench.rig.store.clone(), &bench.env, Duration::from_secs(60));
        assert!(leases.acquire(&bench.request()).await.unwrap());
        let rival = Leases::new(bench.rig.store.clone(), &bench.env, Duration::from_secs(60));
        assert!(!rival.acquire(&bench.request()).await.unwrap());
    }
}

/// Blocks of several writers on a disk, and a bucket for them.
struct Writers {
    world: World,
    backend: Arc<InMemory>,
}

impl Writers {
    fn new() -> Writers {
        Writers { world: World::new(CatalogOptions::default()), backend: Arc::new(InMemory::new()) }
    }

    fn rig(&self, layout: BucketLayout) -> Rig {
        let _entered = self.world.runtime.enter();
        Rig::in_layout(self.backend.clone(), FaultPlan::default(), 1, layout)
    }

    /// Uploads the block of a window, and enters it in the catalogue if it `is_published`.
    fn upload(&mut self, labels: &str, idx: i64, is_published: bool) -> Ulid {
        let meta = self.world.write_block(window(idx), BlockEncoding::Prometheus);
        let rig = self.rig(layout_of(labels));
        let env = Env { disk: self.world.disk.disk.clone(), ..rig.env.clone() };
        let uploader = Uploader::new(rig.store.clone(), &env, self.world.runtime.handle().clone());
        let dir = Path::new("blocks").join(meta.ulid.to_string());
        let request = RequestContext { purpose: Purpose::Upload, ..rig.query(60_000) };
        self.world.runtime.block_on(async {
            let record = uploader.upload(&request, &dir, None).await.unwrap();
            if is_published {
                uploader.publisher().publish(&request, &[record]).await.unwrap();
            }
        });
        meta.ulid
    }

    /// Makes an uploaded block one of another program with its labels.
    fn disown(&self, ulid: Ulid) {
        let rig = self.rig(BucketLayout::Mimir);
        let key = format!("{ulid}/meta.json");
        self.world.runtime.block_on(async {
            let meta = rig.store.read(&rig.query(1000), &key, ReadRange::Whole, None).await.unwrap().bytes;
            let meta = String::from_utf8(meta.to_vec()).unwrap().replace("\"chronolith\"", "\"compactor\"");
            rig.store.put(&rig.query(1000), &key, meta.into()).await.unwrap();
        });
    }

    /// A catalog of a process that has just started.
    fn catalog(&self, layout: BucketLayout) -> Arc<BlockCatalog> {
        let rig = self.rig(layout);
        let options = CatalogOptions { poll: Duration::ZERO, ..CatalogOptions::default() };
        let clock = rig.env.clock.clone();
        BlockCatalog::new(rig.store.clone(), clock, self.world.runtime.handle().clone(), &options)
    }

    /// Selected series of each block of a list, with the name of the block.
    fn read(&self, catalog: &Arc<BlockCatalog>, matchers: &[Matcher]) -> Vec<(Ulid, Answer)> {
        let ctx = self.world.ctx(60_000);
        let blocks = catalog.blocks_in(TenantId::anonymous(), TimeRange::ALL, &ctx).unwrap();
        let selector = Selector { matchers, range: TimeRange::ALL };
        let read = blocks.iter().map(|block| {
            let answer = read_all(&mut *block.select(&selector, &ctx), TimeRange::ALL).unwrap();
            (block.ulid(), answer)
        });
        read.collect()
    }

    fn local(&self, ulid: Ulid) -> &Arc<Block> {
        self.world.local.iter().find(|block| block.meta().ulid == ulid).unwrap()
    }

    /// The series of the block on disk with `m1` and these labels.
    fn want(&self, ulid: Ulid, external: &[(&str, &str)]) -> (Ulid, Answer) {
        let matchers = [Matcher::equal("__name__", "m1")];
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let ctx = self.world.ctx(60_000);
        let mut batches = self.local(ulid).select(&selector, &ctx).unwrap();
        let mut answer = read_all(&mut *batches, TimeRange::ALL).unwrap();
        for (labels, _) in &mut answer {
            let mut builder = LabelsBuilder::default();
            labels.iter().chain(external.iter().copied()).for_each(|(name, value)| builder.push(name, value));
            builder.sort();
            *labels = builder.finish();
        }
        answer.sort();
        (ulid, answer)
    }
}

#[test]
fn a_server_reads_its_own_blocks_as_stored_and_a_reader_those_of_all_with_labels() {
    let mut writers = Writers::new();
    let reader = writers.catalog(BucketLayout::Thanos { writer: None });
    let matchers = [Matcher::equal("__name__", "m1")];
    assert!(writers.read(&reader, &matchers).is_empty());
    let of_eu = writers.upload(EU, 0, true);
    let of_us = writers.upload(US, 1, true);
    let uploading = writers.upload(US, 2, false);
    let of_thanos = writers.upload(US, 3, false);
    writers.disown(of_thanos);
    let without_catalogue = writers.upload(r#"cluster="asia""#, 4, false);

    for (labels, ulid) in [(EU, of_eu), (US, of_us)] {
        let own = writers.catalog(layout_of(labels));
        assert_eq!(writers.read(&own, &matchers), [writers.want(ulid, &[])], "{labels}: without labels");
    }
    let other = writers.catalog(layout_of(r#"cluster="asia""#));
    assert!(writers.read(&other, &matchers).is_empty(), "no catalogue, no blocks of others");

    let mut want = vec![
        writers.want(of_eu, &[("cluster", "eu"), ("replica", "a")]),
        writers.want(of_us, &[("cluster", "us")]),
        writers.want(of_thanos, &[("cluster", "us")]),
        writers.want(without_catalogue, &[("cluster", "asia")]),
    ];
    want.sort_by_key(|(ulid, _)| *ulid);
    let fresh = writers.catalog(BucketLayout::Thanos { writer: None });
    assert_eq!(writers.read(&fresh, &matchers), want);
    let by_label = [Matcher::equal("__name__", "m1"), Matcher::equal("replica", "a")];
    let found = writers.read(&fresh, &by_label);
    let found = found.iter().filter(|(_, answer)| !answer.is_empty());
    assert_eq!(found.map(|(ulid, _)| *ulid).collect::<Vec<_>>(), [of_eu]);

    // A list that is refreshed: the block is seen once it is published.
    let deadline_ns = writers.world.now_ns() + 10_000_000_000;
    let refresh = |catalog: &Arc<BlockCatalog>| {
        let folder = crate::Folder::of_tenant(&TenantId::anonymous());
        writers.world.runtime.block_on(catalog.refresh_now(&folder, deadline_ns)).unwrap();
    };
    refresh(&reader);
    let known = |catalog: &Arc<BlockCatalog>| {
        let ctx = writers.world.ctx(60_000);
        catalog.blocks_in(TenantId::anonymous(), TimeRange::ALL, &ctx).unwrap()
    };
    let before = known(&reader);
    assert_eq!(before.len(), 4);
    assert!(before.iter().all(|block| block.ulid() != uploading));
    refresh(&reader);
    let after = known(&reader);
    assert!(before.iter().zip(&after).all(|(a, b)| Arc::ptr_eq(a, b)), "blocks stay the same objects");
}
