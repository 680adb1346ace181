//! Loop of a run: choose an input, change it, read it, keep it if its outcome is new.
//!
//! Invariants: inputs depend on the seed and the corpus only; the pool and the sets of outcomes are bounded;
//! findings with the same text, but for its numbers, are saved once.
//! Not here: checks of a reader (`reader`).

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use chronolith_base::{Env, Rng};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use super::mutate;
use super::reader::Reader;
use super::watchdog::Watchdog;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// Text and position of the last panic.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Nanoseconds of CPU time for one input.
const TIME_NS_MAX: u64 = 1_000_000_000;
/// Bytes that are allocated for one input, freed ones included: not less than the growth of the process.
const ALLOCATED_BYTES_MAX: usize = 256 << 20;
/// Inputs that are changed further.
const POOL_MAX: usize = 4096;
/// Different outcomes that are remembered.
const OUTCOMES_MAX: usize = 100_000;
/// Different findings, after which a run ends.
const FINDINGS_MAX: usize = 20;
/// Characters of a text that tell outcomes and findings apart.
const OUTCOME_CHARS_MAX: usize = 300;
const PROGRESS_NS: u64 = 30_000_000_000;

/// A run of one reader.
pub(super) struct Session {
    env: Env,
    name: String,
    reader: Box<dyn Reader>,
    rng: Rng,
    seed: u64,
    pool: Vec<Vec<u8>>,
    outcomes: BTreeSet<String>,
    findings: BTreeSet<String>,
    execution_count: u64,
    slowest_ns: u64,
    allocated_bytes_max: usize,
    watchdog: Watchdog,
    dir: PathBuf,
}

impl Session {
    /// A run that starts from the seeds of the reader. Findings are saved in `target/fuzz-findings`.
    pub(super) fn new(env: Env, name: &str, reader: Box<dyn Reader>, seed: u64) -> std::io::Result<Session> {
        let dir = PathBuf::from("target/fuzz-findings");
        env.disk.create_dir_all(&dir)?;
        let watchdog = Watchdog::start(env.clone(), dir.join(format!("{name}-{seed}-endless")))?;
        std::panic::set_hook(Box::new(|panic| {
            *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
        }));
        Ok(Session {
            env,
            name: name.to_owned(),
            pool: reader.seeds(),
            reader,
            rng: Rng::from_seed(seed),
            seed,
            outcomes: BTreeSet::new(),
            findings: BTreeSet::new(),
            execution_count: 0,
            slowest_ns: 0,
            allocated_bytes_max: 0,
            watchdog,
            dir,
        })
    }

    /// Adds the files of a directory to the inputs.
    pub(super) fn read_corpus(&mut self, dir: &Path) -> std::io::Result<()> {
        for entry in self.env.disk.list(dir)?.iter().filter(|entry| !entry.is_dir) {
            self.pool.push(self.env.disk.read(&dir.join(&entry.name))?);
        }
        Ok(())
    }

    /// Reads inputs for some seconds, at first the inputs of the pool. Returns the number of findings.
    pub(super) fn run(&mut self, seconds: u64) -> std::io::Result<usize> {
        let start_ns = self.env.clock.mono_ns();
        let mut report_ns = start_ns + PROGRESS_NS;
        let first: Vec<Vec<u8>> = self.pool.clone();
        for input in &first {
            self.execute(input)?;
        }
        while self.findings.len() < FINDINGS_MAX {
            let now_ns = self.env.clock.mono_ns();
            if now_ns - start_ns >= seconds * 1_000_000_000 {
                break;
            }
            if now_ns >= report_ns {
                self.report(now_ns - start_ns);
                report_ns = now_ns + PROGRESS_NS;
            }
            let input = self.next_input();
            self.execute(&input)?;
        }
        self.report(self.env.clock.mono_ns() - start_ns);
        Ok(self.findings.len())
    }

    fn next_input(&self) -> Vec<u8> {
        let mut input = mutate::pick(&self.rng, &self.pool).clone();
        for _ in 0..=self.rng.below(5) {
            if self.rng.below(2) == 0 {
                self.reader.mutate(&self.rng, &mut input);
            } else {
                let other = mutate::pick(&self.rng, &self.pool);
                mutate::change(&self.rng, &mut input, self.reader.tokens(), other);
            }
            input.truncate(self.reader.input_bytes_max());
        }
        input
    }

    fn execute(&mut self, input: &[u8]) -> std::io::Result<()> {
        self.execution_count += 1;
        let start_ns = self.watchdog.begin(input);
        let region = Region::new(ALLOCATOR);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.reader.read(input)));
        let allocated_bytes = region.change().bytes_allocated;
        let taken_ns = self.watchdog.end() - start_ns;
        self.slowest_ns = self.slowest_ns.max(taken_ns);
        self.allocated_bytes_max = self.allocated_bytes_max.max(allocated_bytes);
        if taken_ns > TIME_NS_MAX {
            self.save(input, &format!("{} ms for {} bytes", taken_ns / 1_000_000, input.len()))?;
        }
        if allocated_bytes > ALLOCATED_BYTES_MAX {
            self.save(input, &format!("{allocated_bytes} bytes allocated for {} bytes", input.len()))?;
        }
        match outcome {
            Ok(Ok(outcome)) => self.keep(input, &outcome),
            Ok(Err(broken)) => self.save(input, &broken)?,
            Err(_) => {
                let panic = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone();
                self.save(input, &panic)?;
            }
        }
        Ok(())
    }

    /// Keeps an input with a new outcome.
    fn keep(&mut self, input: &[u8], outcome: &str) {
        if self.outcomes.len() >= OUTCOMES_MAX || !self.outcomes.insert(without_numbers(outcome)) {
            return;
        }
        if self.pool.len() < POOL_MAX {
            self.pool.push(input.to_vec());
        } else {
            let at = self.rng.below(POOL_MAX as u64) as usize;
            self.pool[at] = input.to_vec();
        }
    }

    fn save(&mut self, input: &[u8], what: &str) -> std::io::Result<()> {
        if !self.findings.insert(without_numbers(what)) {
            return Ok(());
        }
        let path = self.dir.join(format!("{}-{}-{}", self.name, self.seed, self.findings.len()));
        self.env.disk.write_atomic(&path, input)?;
        println!("FINDING: reader {}, seed {}: {what}\n  saved as {}", self.name, self.seed, path.display());
        Ok(())
    }

    fn report(&self, taken_ns: u64) {
        println!(
            "{}: {} s, {} executions, {} outcomes, pool of {}, slowest {} ms, at most {} KiB allocated, {} findings",
            self.name,
            taken_ns / 1_000_000_000,
            self.execution_count,
            self.outcomes.len(),
            self.pool.len(),
            self.slowest_ns / 1_000_000,
            self.allocated_bytes_max >> 10,
            self.findings.len()
        );
    }
}

/// Returns the text without digits and without quoted parts.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut is_quoted = false;
    for char in text.chars() {
        if char == '"' {
            is_quoted = !is_quoted;
        }
        let is_repeated_digit = char.is_ascii_digit() && out.ends_with('#');
        if is_quoted || is_repeated_digit {
            continue;
        }
        if out.len() >= OUTCOME_CHARS_MAX {
            break;
        }
        out.push(if char.is_ascii_digit() { '#' } else { char });
    }
    out
}
