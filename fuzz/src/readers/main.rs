//! Fuzzer of readers: Graphite's inputs (targets, times, pickles, whisper files, configuration files, lines,
//! metrics 2.0), records of the replicated log, and answers of a select between nodes.
//!
//! `cargo run --release -p chronolith-fuzz --bin readers -- --reader
//! parser|times|pickle|whisper|ini|carbon-line|metrics20|record|select [--seconds N] [--seed S]
//! [--corpus DIR]`.
//! Valid inputs, built in or from DIR, are changed and spliced, by bytes and by the grammar of the reader;
//! inputs with a new outcome are changed further. A finding is a panic, a broken property of the reader, more
//! than 1 s of CPU time or 256 MiB of allocations for one input: it is printed with the seed and saved.
//! Invariants: a seed gives the same inputs again; exit code 0 means no finding. Not here: the comparison
//! with Graphite (`tools/graphite-oracle`).

mod carbon_line;
mod ini;
mod metrics20;
mod mutate;
mod pickle;
mod points;
mod reader;
mod record;
mod select;
mod session;
mod target;
mod times;
mod watchdog;
mod whisper;

use std::path::PathBuf;
use std::process::ExitCode;

use chronolith_base::{Env, thread};

use reader::Reader;
use session::Session;

/// Stack of the reader: half of what threads of the server have.
const STACK_BYTES: usize = 1 << 20;

/// Settings of a run.
struct Arguments {
    reader: String,
    seconds: u64,
    seed: u64,
    corpus: Option<PathBuf>,
}

fn arguments() -> Option<Arguments> {
    let mut parsed = Arguments { reader: String::new(), seconds: 60, seed: 1, corpus: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--reader" => parsed.reader = value,
            "--seconds" => parsed.seconds = value.parse().ok()?,
            "--seed" => parsed.seed = value.parse().ok()?,
            "--corpus" => parsed.corpus = Some(PathBuf::from(value)),
            _ => return None,
        }
    }
    Some(parsed)
}

fn reader_of(name: &str) -> Option<Box<dyn Reader>> {
    Some(match name {
        "parser" => Box::new(target::TargetReader),
        "pickle" => Box::new(pickle::PickleReader::default()),
        "whisper" => Box::new(whisper::WhisperReader::default()),
        "ini" => Box::new(ini::IniReader),
        "carbon-line" => Box::new(carbon_line::LineReader),
        "times" => Box::new(times::TimeReader),
        "record" => Box::new(record::RecordReader::default()),
        "select" => Box::new(select::SelectReader),
        "metrics20" => Box::new(metrics20::MetricsReader),
        _ => return None,
    })
}

fn run(arguments: &Arguments) -> std::io::Result<usize> {
    let Some(reader) = reader_of(&arguments.reader) else {
        return Err(std::io::Error::other(format!("unknown reader {:?}", arguments.reader)));
    };
    let mut session = Session::new(Env::real(), &arguments.reader, reader, arguments.seed)?;
    if let Some(dir) = &arguments.corpus {
        session.read_corpus(dir)?;
    }
    session.run(arguments.seconds)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: readers --reader NAME [--seconds N] [--seed S] [--corpus DIR]");
        return ExitCode::from(2);
    };
    let running = thread::spawn_with_stack("reader", STACK_BYTES, move || run(&arguments));
    match running.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(0))) => ExitCode::SUCCESS,
        Ok(Ok(Ok(_))) => ExitCode::FAILURE,
        Ok(Ok(Err(error))) | Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
        Ok(Err(_)) => ExitCode::from(2),
    }
}
