//! The real binary, as an operator runs it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{SOON, poll};

/// A running `deadletter`; killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    folder: Arc<TempDir>,
}

impl Process {
    /// `deadletter run` with this configuration.
    pub(crate) fn start(toml: &str) -> Self {
        Self::start_with(toml, &[])
    }

    /// `deadletter run` with this configuration and some environment, such as `FAILPOINTS` or `RUST_LOG`.
    pub(crate) fn start_with(toml: &str, environment: &[(&str, &str)]) -> Self {
        Self::start_logging_to(toml, environment, |folder| File::create(folder.join("stderr")).unwrap())
    }

    /// The same, with its log somewhere else.
    pub(crate) fn start_logging_to(toml: &str, environment: &[(&str, &str)], log: impl FnOnce(&Path) -> File) -> Self {
        let folder = Arc::new(TempDir::with_prefix("deadletter-process-").unwrap());
        let config = folder.path().join("deadletter.toml");
        fs::write(&config, toml).unwrap();
        let mut command = binary([OsStr::new("run"), config.as_os_str()]);
        command.envs(environment.iter().copied()).stdin(Stdio::null());
        command.stdout(File::create(folder.path().join("stdout")).unwrap());
        command.stderr(log(folder.path()));
        Self { child: command.spawn().unwrap(), folder }
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until it has ended; panics with what it logged at the deadline.
    pub(crate) fn wait(&mut self, deadline: Duration) -> ExitStatus {
        let status = poll(deadline, || self.child.try_wait().unwrap());
        status.unwrap_or_else(|| panic!("the process has not ended within {deadline:?}:\n{}", self.stderr()))
    }

    /// What it logged so far.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// Waits until it has logged this.
    pub(crate) fn await_log(&self, words: &str) {
        let logged = poll(SOON, || self.stderr().contains(words).then_some(()));
        assert!(logged.is_some(), "it does not log {words:?}:\n{}", self.stderr());
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The most memory it has had resident so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the process has ended");
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    /// How many threads and open files it has.
    pub(crate) fn threads_and_files(&self) -> (usize, usize) {
        let count = |what: &str| fs::read_dir(format!("/proc/{}/{what}", self.child.id())).unwrap().count();
        (count("task"), count("fd"))
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Its folder, with its configuration and its log.
    pub(crate) fn folder(&self) -> &Arc<TempDir> {
        &self.folder
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The binary with some arguments, not yet run.
pub(crate) fn binary<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deadletter"));
    command.args(args);
    command
}
