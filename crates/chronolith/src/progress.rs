//! Progress of a tool: one line that is drawn again on a terminal, lines of a log elsewhere.
//! Invariant: a terminal that has gone away ends nothing.

use std::io::{IsTerminal as _, Write as _};

use chronolith_base::Env;
use chronolith_import::Progress;

/// Time between two drawings on a terminal.
const DRAW_EVERY_NS: u64 = 200_000_000;
/// Time between two lines of a log.
const LOG_EVERY_NS: u64 = 10_000_000_000;
const BAR_CELLS: u64 = 30;

/// Form of the progress where standard error is no terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithoutTerminal {
    /// Nothing is printed.
    Silent,
    /// A line from time to time.
    Log,
}

/// The progress line of a tool.
pub(crate) struct Bar {
    env: Env,
    is_terminal: bool,
    every_ns: u64,
    start_ns: u64,
    drawn_ns: u64,
}

impl Bar {
    pub(crate) fn new(env: &Env, without_terminal: WithoutTerminal) -> Bar {
        let now_ns = env.clock.mono_ns();
        let is_terminal = std::io::stderr().is_terminal();
        let every_ns = match (is_terminal, without_terminal) {
            (true, _) => DRAW_EVERY_NS,
            (false, WithoutTerminal::Log) => LOG_EVERY_NS,
            (false, WithoutTerminal::Silent) => u64::MAX,
        };
        let drawn_ns = if is_terminal { 0 } else { now_ns };
        Bar { env: env.clone(), is_terminal, every_ns, start_ns: now_ns, drawn_ns }
    }

    /// Shows the line that `line` makes of the seconds since the start, if it is time for one.
    pub(crate) fn draw(&mut self, line: impl FnOnce(u64) -> String) {
        let now_ns = self.env.clock.mono_ns();
        if now_ns.saturating_sub(self.drawn_ns) < self.every_ns {
            return;
        }
        self.drawn_ns = now_ns;
        let line = line(now_ns.saturating_sub(self.start_ns) / 1_000_000_000);
        let mut out = std::io::stderr();
        let _ = match self.is_terminal {
            true => write!(out, "\r{line}\x1b[K"),
            false => writeln!(out, "{line}"),
        };
    }

    /// Removes the line from a terminal.
    pub(crate) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Returns a bar of cells and the share in percent.
pub(crate) fn cells(done: u64, total: u64) -> String {
    let share = |of: u64| {
        let part = u128::from(done.min(total)) * u128::from(of) / u128::from(total.max(1));
        u64::try_from(part).unwrap_or(of)
    };
    let full = usize::try_from(share(BAR_CELLS)).unwrap_or(0);
    let percent = share(100);
    format!("[{}{}] {percent:>3} %", "#".repeat(full), ".".repeat((BAR_CELLS as usize).saturating_sub(full)))
}

/// Returns the line of an import that reads a known number of bytes.
pub(crate) fn bytes_line(progress: Progress, seconds: u64) -> String {
    let Progress { done_bytes, total_bytes } = progress;
    let cells = cells(done_bytes, total_bytes);
    format!("{cells}  {} of {} MB, {seconds} s", done_bytes >> 20, total_bytes >> 20)
}
