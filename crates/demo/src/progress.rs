//! Progress of the history on standard error: a line that is rewritten on a terminal, else a line every few
//! seconds.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const BAR_WIDTH: usize = 30;
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Counters of all senders.
pub(crate) struct Progress {
    window_count: usize,
    windows_sent: AtomicUsize,
    samples_sent: AtomicU64,
}

impl Progress {
    pub(crate) fn new(window_count: usize) -> Progress {
        Progress { window_count, windows_sent: AtomicUsize::new(0), samples_sent: AtomicU64::new(0) }
    }

    pub(crate) fn add_samples(&self, count: u64) {
        self.samples_sent.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_window(&self) {
        self.windows_sent.fetch_add(1, Ordering::Relaxed);
    }

    fn line(&self) -> String {
        let windows = self.windows_sent.load(Ordering::Relaxed);
        let done = BAR_WIDTH * windows / self.window_count.max(1);
        let bar = "#".repeat(done) + &"-".repeat(BAR_WIDTH - done);
        let percent = 100 * windows / self.window_count.max(1);
        let samples = self.samples_sent.load(Ordering::Relaxed) as f64 / 1e6;
        format!("history [{bar}] {percent:3} %  {samples:.1} M samples")
    }
}

/// Prints progress until it is dropped.
pub(crate) struct Printer {
    is_terminal: bool,
    printed: Instant,
}

impl Printer {
    pub(crate) fn new() -> Printer {
        Printer { is_terminal: std::io::stderr().is_terminal(), printed: Instant::now() }
    }

    /// Prints where `progress` is, if it is time to.
    pub(crate) fn print(&mut self, progress: &Progress) {
        let mut stderr = std::io::stderr();
        // Standard error that is closed does not stop the senders.
        if self.is_terminal {
            drop(write!(stderr, "\r{}", progress.line()));
        } else if self.printed.elapsed() >= LINE_EVERY {
            self.printed = Instant::now();
            drop(writeln!(stderr, "{}", progress.line()));
        }
        drop(stderr.flush());
    }

    /// Prints the last state and ends the line.
    pub(crate) fn finish(self, progress: &Progress) {
        let start = if self.is_terminal { "\r" } else { "" };
        drop(writeln!(std::io::stderr(), "{start}{}", progress.line()));
    }
}
