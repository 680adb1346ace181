//! Progress bar of an import on a terminal.

use std::io::{IsTerminal as _, Write as _};

use chronolith_base::Env;
use chronolith_import::Progress;

/// The progress bar is drawn again after this time.
const DRAW_EVERY_NS: u64 = 200_000_000;
const BAR_CELLS: u64 = 30;

/// A line on the terminal that says how far it is; nothing where standard error is no terminal.
pub(crate) struct ProgressBar {
    env: Env,
    shown: bool,
    start_ns: u64,
    drawn_ns: u64,
}

impl ProgressBar {
    pub(crate) fn new(env: &Env) -> ProgressBar {
        let now_ns = env.clock.mono_ns();
        ProgressBar {
            env: env.clone(),
            shown: std::io::stderr().is_terminal(),
            start_ns: now_ns,
            drawn_ns: 0,
        }
    }

    pub(crate) fn draw(&mut self, progress: Progress) {
        let now_ns = self.env.clock.mono_ns();
        if !self.shown || now_ns - self.drawn_ns < DRAW_EVERY_NS {
            return;
        }
        self.drawn_ns = now_ns;
        let line = bar_line(progress, (now_ns - self.start_ns) / 1_000_000_000);
        // A terminal that has gone away ends nothing.
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
    }

    pub(crate) fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn bar_line(progress: Progress, seconds: u64) -> String {
    let Progress { done_bytes, total_bytes } = progress;
    let share = |of: u64| done_bytes.min(total_bytes) * of / total_bytes.max(1);
    let full = share(BAR_CELLS) as usize;
    let percent = share(100);
    let cells = "#".repeat(full) + &".".repeat(BAR_CELLS as usize - full);
    format!("[{cells}] {percent:>3} %  {} of {} MB, {seconds} s", done_bytes >> 20, total_bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let line = |done_bytes| bar_line(Progress { done_bytes, total_bytes: 4 << 20 }, 1);
        assert!(line(0).starts_with("[....") && line(4 << 20).contains("#] 100 %"), "{}", line(4 << 20));
        assert!(line(9 << 20).contains("100 %") && bar_line(Progress::default(), 0).contains("0 %"));
    }
}
