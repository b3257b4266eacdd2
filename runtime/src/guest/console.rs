//! What guests print and log: cut into lines, escaped, rate-limited, then to `tracing` under the target `guest`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tracing::Level;
use wasmtime_wasi::{
    async_trait,
    cli::{IsTerminal, StdoutStream},
    p2::{OutputStream, Pollable, StreamResult},
};

use super::{
    limits::{STDERR_TAIL, TEXT},
    text,
};

const LINES_PER_WINDOW: u32 = 200;
const WINDOW: Duration = Duration::from_secs(1);

/// The log of one guest, shared by all of its instances, so that a new instance does not begin with a new allowance.
pub(super) struct Log(Mutex<Allowance>);

struct Allowance {
    since: Instant,
    lines: u32,
    dropped: u64,
}

impl Log {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Allowance { since: Instant::now(), lines: 0, dropped: 0 }))
    }

    /// Logs a line, or drops it if there were too many within the last second.
    pub(super) fn line(&self, level: Level, from: &'static str, line: &str) {
        if !self.allows() {
            return;
        }
        let line = text::escaped(line);
        match level {
            Level::ERROR => tracing::error!(target: "guest", from, "{line}"),
            Level::WARN => tracing::warn!(target: "guest", from, "{line}"),
            Level::INFO => tracing::info!(target: "guest", from, "{line}"),
            Level::DEBUG => tracing::debug!(target: "guest", from, "{line}"),
            Level::TRACE => tracing::trace!(target: "guest", from, "{line}"),
        }
    }

    fn allows(&self) -> bool {
        let mut allowance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if allowance.since.elapsed() >= WINDOW {
            if allowance.dropped > 0 {
                tracing::warn!(target: "guest", lines = allowance.dropped, "lines of a guest were dropped: too many a second");
            }
            *allowance = Allowance { since: Instant::now(), lines: 0, dropped: 0 };
        }
        let allowed = allowance.lines < LINES_PER_WINDOW;
        allowance.lines = allowance.lines.saturating_add(1);
        allowance.dropped += u64::from(!allowed);
        allowed
    }
}

/// One output stream of one instance.
#[derive(Clone)]
pub(super) struct Console(Arc<Stream>);

struct Stream {
    log: Arc<Log>,
    level: Level,
    name: &'static str,
    text: Mutex<Text>,
}

#[derive(Default)]
struct Text {
    line: Vec<u8>,
    tail: Vec<u8>,
}

impl Console {
    pub(super) fn new(log: Arc<Log>, level: Level, name: &'static str) -> Self {
        Self(Arc::new(Stream { log, level, name, text: Mutex::default() }))
    }

    /// The end of what was written since the last call of this, and a line without an end goes to the log.
    pub(super) fn take_tail(&self) -> String {
        let mut text = self.0.text.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.line.is_empty() {
            self.end_line(&mut text);
        }
        let tail = std::mem::take(&mut text.tail);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }

    fn push(&self, bytes: &[u8]) {
        let mut text = self.0.text.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = bytes.get(bytes.len().saturating_sub(STDERR_TAIL)..).unwrap_or_default();
        text.tail.extend_from_slice(kept);
        let excess = text.tail.len().saturating_sub(STDERR_TAIL);
        text.tail.drain(..excess);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (piece, ended) = piece.strip_suffix(b"\n").map_or((piece, false), |piece| (piece, true));
            let room = TEXT.saturating_sub(text.line.len()).min(piece.len());
            text.line.extend_from_slice(piece.get(..room).unwrap_or_default());
            if ended {
                self.end_line(&mut text);
            }
        }
    }

    fn end_line(&self, text: &mut Text) {
        self.0.log.line(self.0.level, self.0.name, &String::from_utf8_lossy(&text.line));
        text.line.clear();
    }
}

impl IsTerminal for Console {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Console {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // The stream of WASI 0.3, which is not linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Console {
    async fn ready(&mut self) {}
}

impl OutputStream for Console {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 * 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_end_of_what_was_written_and_is_bounded() {
        let console = Console::new(Arc::new(Log::new()), Level::WARN, "stderr");
        for n in 0..10_000 {
            console.push(format!("line {n}\n").as_bytes());
        }
        console.push(b"no end");
        let tail = console.take_tail();
        assert!(tail.ends_with("line 9999\nno end"), "{tail}");
        assert!(tail.len() <= STDERR_TAIL);
        assert_eq!(console.take_tail(), "");
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_memory() {
        let console = Console::new(Arc::new(Log::new()), Level::INFO, "stdout");
        for _ in 0..100 {
            console.push(&[b'x'; 10_000]);
        }
        assert_eq!(console.0.text.lock().unwrap().line.len(), TEXT);
    }

    #[test]
    fn more_lines_than_allowed_are_dropped() {
        let log = Log::new();
        let allowed = (0..1_000).filter(|_| log.allows()).count();
        assert!((200..1_000).contains(&allowed), "{allowed}");
    }
}
