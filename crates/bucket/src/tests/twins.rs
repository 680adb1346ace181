//! Two blocks whose objects have the same lengths and the same times: no answer of one is taken for an
//! answer of the other, whichever source has named the block.

use std::collections::BTreeMap;
use std::path::Path;

use chronolith_block::{Block, BlockSource, BlockWriter, write_sidecar};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{self, EtagSums};
use chronolith_model::{Matcher, QueryError, Queryable, Selector, TimeRange};

use super::faults::MemoryBucket;
use super::faults::answers::{AnswerDamage, AnswerFaults, AnswerWay, SentRead};
use super::reading::{Answer, TENANT, World, labels, read_all, tenant, window};
use super::*;
use crate::block::{BlockIdentity, BucketBlock};
use crate::buffers::BufferPool;
use crate::cache::BlockCache;
use crate::remote::{ReadRules, Remote};
use crate::store::request::Operation;
use crate::store::retry::Outcome;
use crate::upload::{SidecarFile, Uploader};
use crate::{BlockCatalog, CatalogOptions};

const POD_COUNT: u32 = 8;

/// Source of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Catalogue,
    /// Without ETags, as earlier versions wrote it.
    OldCatalogue,
    /// The objects have other ETags than those that it records.
    CopiedCatalogue,
    Listing,
}

const ALL_NAMED: [Named; 4] = [Named::Catalogue, Named::OldCatalogue, Named::CopiedCatalogue, Named::Listing];

struct Twins {
    world: World,
    answers: Arc<AnswerFaults>,
    records: Vec<catalogue::BucketBlock>,
}

impl Twins {
    fn new(has_sidecars: bool) -> Twins {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (client, answers) = MemoryBucket::new().connect_damaged(BTreeMap::new());
        let rig = {
            let _entered = runtime.enter();
            Rig::over(client, FaultPlan::default(), 3)
        };
        let options = CatalogOptions::default();
        let handle = runtime.handle().clone();
        let catalog = BlockCatalog::new(rig.store.clone(), rig.env.clock.clone(), handle, &options);
        let (disk, _, _) = Env::fake(window(0).start, 7);
        let mut world = World { runtime, rig, catalog, disk, local: Vec::new() };
        let values = [1031u32, 1041];
        let records = values.map(|value| upload_block(&mut world, value, has_sidecars)).into();
        Twins { world, answers, records }
    }

    /// The first block.
    fn open(&self, named: Named, keeps_chunks: bool) -> Arc<BucketBlock> {
        let record = &self.records[0];
        let cache = BlockCache::new(64 << 20, None);
        let remote = |key: String| Remote {
            store: self.world.rig.store.clone(),
            clock: self.world.rig.env.clock.clone(),
            handle: self.world.runtime.handle().clone(),
            folder: tenant().into(),
            key,
            rules: ReadRules { keeps_chunks, verifies_chunks: false },
            purpose: Purpose::Query,
            sidecars: Arc::default(),
            buffers: BufferPool::new(1 << 20),
        };
        let recorded = |etags: EtagSums| {
            let record = catalogue::BucketBlock { etags, ..record.clone() };
            BucketBlock::recorded(&record, &remote(TENANT.to_owned()), None, cache.clone())
        };
        let twin = &self.records[1];
        match named {
            Named::Catalogue => recorded(record.etags.clone()),
            Named::OldCatalogue => recorded(EtagSums::default()),
            Named::CopiedCatalogue => {
                let other = |sum: u32| sum ^ 0x5555;
                let EtagSums { index, segments, rollups, sidecar } = twin.etags.clone();
                let segments = segments.into_iter().map(other).collect();
                recorded(EtagSums { index: other(index), segments, rollups, sidecar: other(sidecar) })
            }
            Named::Listing => {
                let ulid = record.ulid;
                let identity = BlockIdentity {
                    ulid,
                    range: record.range,
                    precedence: (ulid, ulid),
                    sources: Arc::default(),
                    split_set: None,
                    external_labels: None,
                    is_of_chronolith: true,
                };
                BucketBlock::listed(identity, None, remote(format!("{TENANT}/{ulid}")), cache)
            }
        }
    }

    fn select(&self, block: &Arc<BucketBlock>) -> Result<Answer, QueryError> {
        let matchers = [Matcher::equal("__name__", "m")];
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        read_all(&mut *block.select(&selector, &self.world.ctx(60_000)), TimeRange::ALL)
    }

    fn want(&self) -> Answer {
        let matchers = [Matcher::equal("__name__", "m")];
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let local = self.world.local.iter().find(|block| block.meta().ulid == self.records[0].ulid).unwrap();
        read_all(&mut *local.select(&selector, &self.world.ctx(60_000)).unwrap(), TimeRange::ALL).unwrap()
    }

    /// Answers reads of this object of the first block with the second one's.
    fn swap(&self, name: &str, count_max: u64, seed: u64) {
        let key = format!("{TENANT}/{}/{name}", self.records[0].ulid);
        let matches = Box::new(move |sent: &SentRead| sent.operation == "get" && sent.key == key);
        self.answers.set(Some(AnswerDamage { way: AnswerWay::Other, matches, count_max, seed }));
    }

    fn heads(&self) -> u64 {
        self.world.counters().requests(Operation::Head, Outcome::Ok)
    }
}

/// Writes a block whose series have values from `value` on, and uploads it.
fn upload_block(world: &mut World, value: u32, has_sidecar: bool) -> catalogue::BucketBlock {
    let mut writer = BlockWriter::create(&world.disk, Path::new("blocks")).unwrap();
    let times: Vec<i64> = (0..200).map(|idx| window(0).start + idx * 15_000).collect();
    for pod in 0..POD_COUNT {
        let values: Vec<f64> = vec![f64::from(value + pod); times.len()];
        let labels = labels(&[("__name__", "m"), ("pod", &format!("pod-{pod}"))]);
        writer.add_samples(&labels, &times, &values).unwrap();
    }
    let meta = writer.finish(BlockSource::head(window(0))).unwrap().unwrap();
    let dir = Path::new("blocks").join(meta.ulid.to_string());
    let block = Block::open(&world.disk, &dir).unwrap();
    let sidecar = has_sidecar.then(|| local_sidecar(world, &block, meta.ulid));
    world.local.push(block);
    let env = Env { disk: world.disk.disk.clone(), ..world.rig.env.clone() };
    let uploader = Uploader::new(world.rig.store.clone(), &env, world.runtime.handle().clone());
    let timeout = Duration::from_secs(60);
    let request = RequestContext::with_timeout(&*world.rig.env.clock, tenant(), timeout, Purpose::Upload);
    world.runtime.block_on(uploader.upload(&request, &dir, sidecar)).unwrap()
}

fn local_sidecar(world: &World, block: &Block, ulid: Ulid) -> SidecarFile {
    let mut bytes = Vec::new();
    let summary = write_sidecar(&world.disk, block, |part| bytes.extend_from_slice(part)).unwrap();
    let path = Path::new("blocks").join(format!("{ulid}.sidecar"));
    world.disk.disk.create(&path).unwrap().write_at(&bytes, 0).unwrap();
    SidecarFile { path, head_bytes: summary.head_len }
}

#[test]
fn the_objects_of_twins_differ_in_their_bytes_alone() {
    let twins = Twins::new(true);
    let [one, other] = twins.records.as_slice() else { panic!("two") };
    assert_eq!((one.files.index, &one.files.segments), (other.files.index, &other.files.segments));
    assert_eq!((one.range, &one.counts), (other.range, &other.counts));
    assert!(!one.etags.is_empty() && one.etags.index != other.etags.index);
    assert_ne!(one.etags.segments, other.etags.segments);
}

/// Chunks of another block were taken for chunks of this one: their checksums and times were right.
#[test]
fn answers_of_a_twin_are_refused_or_read_again() {
    let mut hits = [0, 0];
    for has_sidecars in [true, false] {
        let twins = Twins::new(has_sidecars);
        let want = twins.want();
        let files = ["chunks/000001", "index", "chronolith.sidecar"];
        let cases = files.iter().flat_map(|file| ALL_NAMED.map(|named| (*file, named)));
        for (file, named) in cases {
            for (seed, keeps_chunks) in (0..6).flat_map(|seed| [(seed, true), (seed, false)]) {
                for count_max in [1, 2, u64::MAX] {
                    let shown = format!("{file} {named:?} {seed} {keeps_chunks} {count_max} {has_sidecars}");
                    twins.swap(file, count_max, seed);
                    let block = twins.open(named, keeps_chunks);
                    for _ in 0..2 {
                        match twins.select(&block) {
                            Ok(found) => assert!(found == want, "{shown}"),
                            Err(error) => assert!(!error.to_string().is_empty(), "{shown}"),
                        }
                    }
                    hits[usize::from(count_max > 2)] += twins.answers.hit_count();
                    twins.answers.set(None);
                    assert!(twins.select(&block).is_ok_and(|found| found == want), "after {shown}");
                }
            }
        }
    }
    assert!(hits.iter().all(|count| *count > 100), "{hits:?}");
}

/// A read of a recorded or listed block costs no request more. Otherwise each object costs one, once.
#[test]
fn only_unknown_etags_cost_a_request() {
    for has_sidecars in [true, false] {
        let twins = Twins::new(has_sidecars);
        let want = twins.want();
        for named in ALL_NAMED {
            for keeps_chunks in [true, false] {
                let before = twins.heads();
                let block = twins.open(named, keeps_chunks);
                assert!(twins.select(&block).is_ok_and(|found| found == want), "{named:?}");
                let first = twins.heads() - before;
                assert!(twins.select(&block).is_ok_and(|found| found == want), "{named:?}");
                let later = twins.heads() - before - first;
                let is_known = matches!(named, Named::Catalogue | Named::Listing);
                assert_eq!(later, 0, "{named:?} {keeps_chunks}");
                assert!(if is_known { first == 0 } else { (1..=3).contains(&first) }, "{named:?}: {first}");
            }
        }
    }
}
