//! A real single-node Kafka broker, which never outlives the test process.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{SOON, built, eventually, poll};

/// Runs the broker given as its arguments, tells its pid, and waits for one line that names a signal for it. When
/// instead the pipe closes, the test process is gone, however it went: so is then the broker, with its data.
const GUARDIAN: &str = r#"
folder=$1; shift
"$@" </dev/null >"$folder/server.log" 2>&1 &
echo $!
if read -r signal; then
    kill -s "$signal" $!
    wait $!
else
    kill -s KILL $!
    wait $!
    rm -rf "$folder"
fi
"#;

/// What every broker is given: quick to start and small, with the limits lowered that would make tests wait.
const PROPERTIES: &[(&str, &str)] = &[
    ("process.roles", "broker,controller"),
    ("node.id", "1"),
    ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ("controller.listener.names", "CONTROLLER"),
    ("inter.broker.listener.name", "PLAINTEXT"),
    ("num.network.threads", "2"),
    ("num.io.threads", "4"),
    // A killed broker is let in again only when its session has ended.
    ("broker.session.timeout.ms", "3000"),
    ("broker.heartbeat.interval.ms", "500"),
    ("auto.create.topics.enable", "false"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "500"),
    ("group.consumer.min.session.timeout.ms", "500"),
    ("group.consumer.session.timeout.ms", "3000"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "300"),
    ("log.cleaner.dedupe.buffer.size", "16777216"),
    ("log.cleaner.backoff.ms", "200"),
    // Old timestamps are no reason to delete; a topic that wants retention says so.
    ("log.retention.ms", "-1"),
    ("log.retention.check.interval.ms", "500"),
    ("log.initial.task.delay.ms", "200"),
    ("offsets.topic.num.partitions", "1"),
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
];

/// How long a broker may take to stop in order.
const GRACE: Duration = Duration::from_secs(10);

/// What a broker is given besides what every one is given.
#[derive(Default)]
pub(crate) struct Extras<'a> {
    /// Properties of the server, besides or instead of the harness's own.
    pub(crate) properties: &'a [(&'a str, &'a str)],
    /// Listeners, such as `SSL://127.0.0.1:9093`.
    pub(crate) listeners: &'a [String],
    /// What is said to the tool that prepares the data folder.
    pub(crate) format: &'a [String],
}

/// A broker on a free port of the loopback interface; it keeps its data and its port when it is stopped and started.
pub(crate) struct Broker {
    /// `host:port`, for clients.
    pub(crate) servers: String,
    running: Mutex<Option<Guardian>>,
    folder: TempDir,
}

impl Broker {
    /// Starts one, with `properties` of the server besides or instead of the harness's own.
    pub(crate) fn start(properties: &[(&str, &str)]) -> Self {
        Self::start_with(&Extras { properties, ..Extras::default() })
    }

    /// Starts one with more than properties.
    pub(crate) fn start_with(extras: &Extras<'_>) -> Self {
        let folder = TempDir::with_prefix("deadletter-broker-").unwrap();
        let [port, controller_port] = [free_port(), free_port()];
        let servers = format!("127.0.0.1:{port}");
        let listeners = [&[format!("PLAINTEXT://{servers}")], extras.listeners].concat().join(",");
        let places = [
            ("listeners", format!("{listeners},CONTROLLER://127.0.0.1:{controller_port}")),
            ("advertised.listeners", listeners),
            ("controller.quorum.voters", format!("1@127.0.0.1:{controller_port}")),
            ("log.dirs", folder.path().join("data").display().to_string()),
        ];
        let places = places.iter().map(|(key, value)| (*key, value.as_str()));
        let lines = PROPERTIES.iter().copied().chain(places).chain(extras.properties.iter().copied());
        let lines: Vec<_> = lines.map(|(key, value)| format!("{key}={value}\n")).collect();
        fs::write(folder.path().join("server.properties"), lines.concat()).unwrap();
        format(folder.path(), extras.format);
        let broker = Self { servers, running: Mutex::new(None), folder };
        broker.resume();
        broker
    }

    /// Starts it again after a stop, and waits until it serves.
    pub(crate) fn resume(&self) {
        let mut running = self.running.lock().unwrap();
        assert!(running.is_none(), "the broker is running");
        *running = Some(Guardian::start(self.folder.path()));
    }

    /// Gives it another property, which counts from its next start on.
    pub(crate) fn set(&self, key: &str, value: &str) {
        let mut file = File::options().append(true).open(self.folder.path().join("server.properties")).unwrap();
        writeln!(file, "{key}={value}").unwrap();
    }

    /// Stops it in order: it hands over and closes its log.
    pub(crate) fn stop(&self) {
        self.end(Signal::TERM);
    }

    /// Stops it as a crash does.
    pub(crate) fn kill(&self) {
        self.end(Signal::KILL);
    }

    fn end(&self, signal: Signal) {
        let guardian = self.running.lock().unwrap().take();
        guardian.expect("the broker is stopped already").end(signal);
    }

    /// What the broker printed since it was started last.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default()
    }
}

/// The shell that watches over one run of the broker.
struct Guardian {
    shell: Child,
    orders: Option<ChildStdin>,
    broker: Pid,
}

impl Guardian {
    fn start(folder: &Path) -> Self {
        // What the last run said is not taken for what this one says.
        let log = folder.join("server.log");
        fs::remove_file(&log).ok();
        let mut shell = Command::new("sh");
        shell.args(["-c", GUARDIAN, "guardian"]).arg(folder).arg("java");
        shell.args(["-Xms64m", "-Xmx512m", "-XX:+UseSerialGC"]).args(class_path()).arg("kafka.Kafka");
        shell.arg(folder.join("server.properties"));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own, so that an interrupt from the terminal reaches the test process alone.
        let mut shell = shell.process_group(0).spawn().expect("cannot run sh");
        let mut pid = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let broker = pid.trim().parse().ok().and_then(Pid::from_raw).expect("the guardian told no pid");
        let guardian = Self { orders: shell.stdin.take(), shell, broker };
        guardian.await_started(&log);
        guardian
    }

    fn await_started(&self, log: &Path) {
        let log = || fs::read_to_string(log).unwrap_or_default();
        let stat = format!("/proc/{}/stat", self.broker.as_raw_nonzero());
        let started = poll(2 * SOON, || {
            // A process that has ended is a zombie until the guardian takes note.
            let has_ended = fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
            (has_ended || log().contains("Kafka Server started")).then_some(!has_ended)
        });
        assert_eq!(started, Some(true), "the broker does not start:\n{}", log());
    }

    fn end(mut self, signal: Signal) {
        let name = if signal == Signal::KILL { "KILL" } else { "TERM" };
        writeln!(self.orders.as_mut().unwrap(), "{name}").unwrap();
        let mut has_ended = || self.shell.try_wait().unwrap();
        // A broker that is stopped in order may wait for its controller, which is going as well.
        if poll(GRACE, &mut has_ended).is_none() {
            kill_process(self.broker, Signal::KILL).unwrap();
            eventually(SOON, "the broker ends", has_ended);
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.shell.wait().ok();
    }
}

/// Prepares the data folder; a broker does not start without.
fn format(folder: &Path, extras: &[String]) {
    let mut tool = Command::new("java");
    tool.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]).args(class_path());
    tool.args(["kafka.tools.StorageTool", "format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--config"]);
    let output = tool.arg(folder.join("server.properties")).args(extras).output().expect("cannot run java");
    assert!(output.status.success(), "cannot format the broker's data: {output:?}");
}

/// The jars that `cargo xtask` fetched.
fn class_path() -> [String; 2] {
    ["-classpath".into(), built("kafka").join("*").display().to_string()]
}

/// A port below the range that the system gives to outgoing connections, so that none of those takes the port of a
/// broker while it is stopped.
pub(crate) fn free_port() -> u16 {
    let ports = std::iter::repeat_with(|| rand::random_range(20_000..32_000));
    ports.take(1_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("no port is free")
}
