//! A process with a listener, and whoever operates it.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Output,
    time::Duration,
};

use super::{Process, SOON, binary, broker::free_port, poll};

/// A running `deadletter` with `[admin]`.
pub(crate) struct Operated {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

/// What each process of the tests is configured with.
pub(crate) const TOKEN: &str = "a-token-of-the-tests";

impl Operated {
    /// `deadletter run` with this configuration, and a listener.
    pub(crate) fn start(config: &str) -> Self {
        let port = free_port();
        let admin = format!("\n[admin]\nlisten = \"127.0.0.1:{port}\"\ntoken = \"${{TEST_ADMIN_TOKEN}}\"\n");
        let process = Process::start_with(&(config.to_owned() + &admin), &[("TEST_ADMIN_TOKEN", TOKEN)]);
        let operated = Self { process, port };
        operated
            .eventually("it is assigned", || (operated.get("/status").1.contains("\"assigned\":true")).then_some(()));
        operated
    }

    /// Waits; panics with what the process logged at the deadline.
    pub(crate) fn eventually<T>(&self, what: &str, condition: impl FnMut() -> Option<T>) -> T {
        poll(SOON, condition).unwrap_or_else(|| panic!("not in time: {what}\n{}", self.process.stderr()))
    }

    /// A command that finds the process by its configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        let config = self.process.folder().path().join("deadletter.toml").display().to_string();
        let arguments = arguments.iter().copied().chain(["--config", &config]);
        binary(arguments).env("TEST_ADMIN_TOKEN", TOKEN).env("USER", "ada").output().unwrap()
    }

    /// The same, which must succeed; what it printed.
    pub(crate) fn must(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", self.process.stderr());
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, which must be refused with 1; the sentence.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        refused(&self.command(arguments), 1)
    }

    /// The lanes of its only pipeline, as `status --json` has them.
    pub(crate) fn lanes(&self) -> Vec<serde_json::Value> {
        let status: serde_json::Value = serde_json::from_str(&self.must(&["status", "--json"])).unwrap();
        let pipelines = status["pipelines"].as_object().unwrap();
        pipelines.values().next().unwrap()["lanes"].as_array().unwrap().clone()
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        http(self.port, &format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
    }

    /// Every sample of `/metrics`, by name and labels.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        let (code, page) = self.get("/metrics");
        assert_eq!(code, 200, "{page}\n{}", self.process.stderr());
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        samples
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect()
    }

    /// Waits until a sample is as it should be.
    pub(crate) fn await_metric(&self, sample: &str, is: impl Fn(f64) -> bool) -> f64 {
        self.eventually(sample, || self.metrics().get(sample).copied().filter(|value| is(*value)))
    }
}

/// The one sentence of a command that ended with this code.
pub(crate) fn refused(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{said}");
    said
}

/// Code and body of what is answered to raw bytes; 0 if nothing is.
pub(crate) fn http(port: u16, request: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return (0, String::new()) };
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // It may be refused before all of it is written.
    stream.write_all(request.as_bytes()).ok();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    (code, answer.split_once("\r\n\r\n").unwrap_or_default().1.to_owned())
}
