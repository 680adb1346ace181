//! Damage campaign over the answers of a bucket: each read and listing of a read-only server is answered
//! wrongly in seven ways, once or every time, with a cache directory and without. Each answer of the server
//! is right or an error, none is short in silence; after the fault it is right, also after a restart.
//!
//! Not here: damaged objects (`bucket_damage`).
//!
//! `CHRONOLITH_ANSWER_DAMAGE_ROUNDS=3 cargo test -p chronolith-tsdb --test it answer_damage::` runs all
//! trials in that many rounds of random positions; `make test` runs a part of one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronolith_bucket::BucketLayout;
use chronolith_bucket::store::faults::answers::{AnswerDamage, AnswerFaults, AnswerWay, SentRead};
use chronolith_bucket::store::faults::{FaultStore, MemoryBucket};
use chronolith_model::BlockEncoding;
use chronolith_tsdb::BucketSources;

use crate::bucket_damage::{Answers, BUCKET, ask, fill};
use crate::damage::{Files, collect};
use crate::thanos::fill_two_servers;
use crate::upload::World;

/// Trials of a usual run.
const USUAL_TRIALS: usize = 400;
/// Age at which a process reads its lists again before it answers.
const LIST_AGE_MAX: Duration = Duration::from_mins(61);

type Objects = BTreeMap<String, Vec<u8>>;

/// A bucket and the answers of a read-only server without faults.
struct Case {
    name: &'static str,
    objects: MemoryBucket,
    older: Objects,
    layout: BucketLayout,
    want: Answers,
}

/// A bucket of one kind, before the server was asked.
struct Setup {
    name: &'static str,
    objects: Objects,
    older: Objects,
    layout: BucketLayout,
}

/// Reads whose answers are damaged together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// The first answer to this read.
    Once(SentRead),
    /// All answers to reads of this kind.
    Every(String),
}

impl Target {
    fn damage(&self, way: AnswerWay, seed: u64) -> AnswerDamage {
        match self.clone() {
            Target::Once(read) => {
                AnswerDamage { way, matches: Box::new(move |sent| *sent == read), count_max: 1, seed }
            }
            Target::Every(kind) => {
                let matches = Box::new(move |sent: &SentRead| kind_of(sent) == kind);
                AnswerDamage { way, matches, count_max: u64::MAX, seed }
            }
        }
    }
}

/// Objects without the folder of the bucket.
fn objects_of(files: &Files) -> Objects {
    let key = |path: &Path| path.strip_prefix(BUCKET).expect("in the bucket").display().to_string();
    files.iter().map(|(path, bytes)| (key(path), bytes.clone())).collect()
}

/// A read without numbers and names of blocks and stores.
fn kind_of(read: &SentRead) -> String {
    let segment = |text: &str| match text.len() {
        26 if text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()) => {
            "ULID".to_owned()
        }
        32 if text.bytes().all(|byte| byte.is_ascii_hexdigit()) => "STORE".to_owned(),
        6 | 20 if text.bytes().all(|byte| byte.is_ascii_digit()) => "N".to_owned(),
        _ => text.split("-0").next().unwrap_or(text).to_owned(),
    };
    let key: Vec<String> = read.key.split('/').map(segment).collect();
    let range = if read.range.is_empty() { "" } else { " range" };
    format!("{} {}{range}", read.operation, key.join("/"))
}

/// Buckets with catalogues: as they are, without hints, with old hints, with few hints.
fn catalogued() -> Vec<Setup> {
    let world = World::new(51);
    let older = objects_of(&fill(&world));
    let mut files = Files::new();
    collect(&world.machine.disk, Path::new(BUCKET), &mut files);
    let objects = objects_of(&files);
    let mimir =
        |name, objects: Objects| Setup { name, objects, older: older.clone(), layout: BucketLayout::Mimir };
    let is_hint = |key: &str| key.ends_with("/latest");
    let without = objects.iter().filter(|(key, _)| !is_hint(key));
    let with_old = objects.iter().map(|(key, bytes)| {
        let old = older.get(key).filter(|_| is_hint(key));
        (key.clone(), old.unwrap_or(bytes).clone())
    });
    // Blocks of another program: neither a catalogue nor sidecars.
    let is_foreign = |key: &str| {
        !["/catalog/", "/databases/", "/stores/", ".sidecar"].iter().any(|part| key.contains(part))
    };
    let foreign = objects.iter().filter(|(key, _)| is_foreign(key));
    vec![
        mimir("without hints", without.map(|(key, bytes)| (key.clone(), bytes.clone())).collect()),
        mimir("with old hints", with_old.collect()),
        mimir("of another program", foreign.map(|(key, bytes)| (key.clone(), bytes.clone())).collect()),
        mimir("with catalogues", objects.clone()),
    ]
}

/// Two servers in Thanos's layout, one of them without a catalogue, as another program leaves its blocks.
fn in_thanos_layout() -> Setup {
    let mut world = World::new(52);
    world.machine.options.limits.default.block_encoding = BlockEncoding::Prometheus;
    let older = objects_of(&fill_two_servers(&world));
    let mut files = Files::new();
    collect(&world.machine.disk, Path::new(BUCKET), &mut files);
    let mut objects = objects_of(&files);
    objects.retain(|key, _| !key.starts_with("chronolith/cluster=us/"));
    Setup { name: "in Thanos's layout", objects, older, layout: BucketLayout::Thanos { writer: None } }
}

impl Case {
    fn new(world: &World, setup: Setup) -> Case {
        let Setup { name, objects, older, layout } = setup;
        let objects = world.bucket_of(objects);
        let case = Case { name, objects, older, layout, want: Answers::new() };
        let (client, _) = case.connect();
        let want = ask(world, &case.open(world, client, None)).expect("an answer");
        assert!(!want.is_empty(), "{name}: {want:?}");
        Case { want, ..case }
    }

    fn connect(&self) -> (Arc<FaultStore>, Arc<AnswerFaults>) {
        let older = self.older.iter().map(|(key, bytes)| (key.clone(), bytes.clone().into()));
        self.objects.connect_damaged(older.collect())
    }

    fn open(&self, world: &World, client: Arc<FaultStore>, cache_dir: Option<PathBuf>) -> BucketSources {
        world.read_only_over(client, self.layout.clone(), cache_dir)
    }

    /// Reads of a server without faults, which asks again when its lists are old.
    fn targets(&self, world: &World) -> Vec<Target> {
        let (client, answers) = self.connect();
        let reader = self.open(world, client, None);
        ask(world, &reader).expect("an answer");
        world.machine.clock.advance(LIST_AGE_MAX);
        ask(world, &reader).expect("an answer");
        let sent: BTreeSet<SentRead> = answers.sent().into_iter().collect();
        let kinds: BTreeSet<String> = sent.iter().map(kind_of).collect();
        kinds.into_iter().map(Target::Every).chain(sent.into_iter().map(Target::Once)).collect()
    }

    /// Compares an answer. Returns the text of an error, `None` for a right answer.
    fn compare(&self, world: &World, reader: &BucketSources) -> Result<Option<String>, Failure> {
        match ask(world, reader) {
            Ok(answers) if answers == self.want => Ok(None),
            Ok(answers) => {
                let other = answers.iter().find(|line| !self.want.contains(line));
                let other: String = other.into_iter().flat_map(|line| line.chars().take(150)).collect();
                let is_short = answers.iter().all(|line| self.want.contains(line));
                let what = format!("{} lines instead of {}: {other}", answers.len(), self.want.len());
                Err(Failure { is_short, what })
            }
            Err(error) => match error.to_string() {
                text if text.is_empty() => Err(Failure::wrong("an error without a text".to_owned())),
                text => Ok(Some(text)),
            },
        }
    }

    /// One damaged read. Returns the number of refused answers; `None` if nothing was damaged.
    fn run(
        &self,
        world: &World,
        damage: AnswerDamage,
        cache_dir: Option<PathBuf>,
    ) -> Result<Option<usize>, Failure> {
        let (client, answers) = self.connect();
        let reader = self.open(world, client.clone(), cache_dir.clone());
        answers.set(Some(damage));
        let mut refused = 0;
        for when in ["first", "when lists are old"] {
            let error = self.compare(world, &reader).map_err(|failure| failure.at(when))?;
            refused += usize::from(error.is_some());
            world.machine.clock.advance(LIST_AGE_MAX);
        }
        let hits = answers.hit_count();
        answers.set(None);
        let right = |reader: &BucketSources, when: &str| match self.compare(world, reader) {
            Ok(None) => Ok(()),
            Ok(Some(text)) => Err(Failure::wrong(text).at(when)),
            Err(failure) => Err(failure.at(when)),
        };
        right(&reader, "after the fault")?;
        drop(reader);
        right(&self.open(world, client, cache_dir), "after a restart after the fault")?;
        Ok((hits > 0).then_some(refused))
    }
}

/// An answer that is neither right nor refused, or an error without a fault.
#[derive(Debug)]
struct Failure {
    /// Lines are missing, and none is wrong.
    is_short: bool,
    what: String,
}

impl Failure {
    fn wrong(what: String) -> Failure {
        Failure { is_short: false, what }
    }

    fn at(self, when: &str) -> Failure {
        Failure { what: format!("{when}: {}", self.what), ..self }
    }
}

/// Counts of trials of one way.
#[derive(Debug, Default)]
struct Tally {
    /// All answers were right.
    right: usize,
    /// An answer was refused, all others were right.
    refused: usize,
    short: usize,
    wrong: usize,
    /// No answer was hit.
    unhit: usize,
}

impl Tally {
    fn count(&mut self, result: &Result<Option<usize>, Failure>) {
        let counter = match result {
            Ok(None) => &mut self.unhit,
            Ok(Some(0)) => &mut self.right,
            Ok(Some(_)) => &mut self.refused,
            Err(Failure { is_short: true, .. }) => &mut self.short,
            Err(_) => &mut self.wrong,
        };
        *counter += 1;
    }
}

/// Trials of one test.
#[derive(Default)]
struct Campaign {
    tallies: BTreeMap<AnswerWay, Tally>,
    kinds: BTreeSet<String>,
    failures: Vec<String>,
}

impl Campaign {
    /// Runs the trials of one case.
    fn run(&mut self, world: &World, case: &Case, rounds: Option<u64>) {
        let targets = case.targets(world);
        self.kinds.extend(targets.iter().filter_map(|target| match target {
            Target::Every(kind) => Some(kind.clone()),
            Target::Once(_) => None,
        }));
        let all: Vec<(&Target, AnswerWay, bool)> = targets
            .iter()
            .flat_map(|target| AnswerWay::ALL.map(|way| [(target, way, false), (target, way, true)]))
            .flatten()
            .collect();
        // A part that has all ways: the step has no factor in common with their number.
        let step = if rounds.is_some() { 1 } else { (all.len() / (USUAL_TRIALS / 5)).max(1) | 1 };
        for round in 0..rounds.unwrap_or(1) {
            for (idx, (target, way, is_cached)) in all.iter().enumerate().step_by(step) {
                let place = (round << 32) + idx as u64;
                let cache_dir = is_cached.then(|| PathBuf::from(format!("/cache-{}-{place}", case.name)));
                let result = case.run(world, target.damage(*way, place), cache_dir.clone());
                self.tallies.entry(*way).or_default().count(&result);
                if let Err(failure) = result {
                    let cache = if *is_cached { "cache directory" } else { "no cache directory" };
                    self.failures
                        .push(format!("{} {target:?} {way:?}, {cache}: {}", case.name, failure.what));
                }
                cache_dir.iter().for_each(|dir| drop(world.machine.env.disk.remove_dir_all(dir)));
            }
        }
    }
}

fn run_all(setups: Vec<Setup>, seed: u64) {
    let rounds = std::env::var("CHRONOLITH_ANSWER_DAMAGE_ROUNDS").ok().and_then(|text| text.parse().ok());
    let world = World::new(seed);
    let mut campaign = Campaign::default();
    for setup in setups {
        campaign.run(&world, &Case::new(&world, setup), rounds);
    }
    let Campaign { tallies, kinds, failures } = campaign;
    println!("{} kinds: {}", kinds.len(), kinds.into_iter().collect::<Vec<_>>().join(", "));
    tallies.iter().for_each(|(way, tally)| println!("{way:?}: {tally:?}"));
    assert!(failures.is_empty(), "{} wrong:\n{}", failures.len(), failures.join("\n"));
    let sum = |count: fn(&Tally) -> usize| tallies.values().map(count).sum::<usize>();
    assert!(sum(|tally| tally.right) > 20 && sum(|tally| tally.refused) > 0, "{tallies:?}");
}

#[test]
fn every_damaged_answer_of_a_catalogued_bucket_is_refused_or_harmless() {
    run_all(catalogued(), 51);
}

#[test]
fn every_damaged_answer_in_thanos_layout_is_refused_or_harmless() {
    run_all(vec![in_thanos_layout()], 52);
}
