//! The TOML as typed: its keys, their ranges, their defaults.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

use super::{
    DEFAULT_CLUSTER, Dialect, KeyChoice, LimitThen, OnGone, OnOutOfRange, OpenThen, PartitionChoice, RouteLimit,
    SeekThreshold, Start, TimestampChoice,
    value::{Count, Property, Ratio, Size, Span},
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// As `humantime` counts it, leap days included.
const YEAR: u64 = 31_557_600 * SECOND;

/// A whole file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct File {
    pub(super) memory: Option<Size<MIB, { 1024 * GIB }>>,
    pub(super) kafka: Option<Kafka>,
    #[serde(default)]
    pub(super) clusters: BTreeMap<String, Kafka>,
    pub(super) admin: Option<Admin>,
    #[serde(default)]
    pub(super) pipelines: BTreeMap<String, Pipeline>,
}

/// `[admin]`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Admin {
    pub(super) listen: String,
    pub(super) token: Option<Property>,
}

/// `[kafka]`, and `[clusters.<name>]`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Kafka {
    pub(super) brokers: String,
    #[serde(default)]
    pub(super) common: BTreeMap<String, Property>,
    #[serde(default)]
    pub(super) consumer: BTreeMap<String, Property>,
    #[serde(default)]
    pub(super) producer: BTreeMap<String, Property>,
    #[serde(default)]
    pub(super) shadow: Shadow,
}

/// `[kafka.shadow]`.
#[derive(Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Shadow {
    /// Each is two clients, and each client a thread a broker.
    pub(super) readers: Count<1, 64>,
    pub(super) seek_threshold: SeekThreshold,
    pub(super) deadline: Span<1, HOUR>,
    pub(super) group_id: String,
}

impl Default for Shadow {
    fn default() -> Self {
        Self {
            readers: Count(2),
            seek_threshold: SeekThreshold::Auto,
            deadline: Span::seconds(10),
            group_id: "deadletter-shadow".to_owned(),
        }
    }
}

/// `[pipelines.<name>]`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Pipeline {
    #[serde(default = "default_cluster")]
    pub(super) cluster: String,
    pub(super) topics: Vec<String>,
    pub(super) group: String,
    pub(super) start: Start,
    pub(super) guest: Guest,
    #[serde(default)]
    pub(super) batch: Batch,
    #[serde(default = "one_second")]
    pub(super) commit: Span<1, HOUR>,
    pub(super) instances: Option<Count<1, 1024>>,
    pub(super) in_hand: Option<Size<KIB, { 64 * GIB }>>,
    #[serde(default)]
    pub(super) open: Open,
    #[serde(default = "one_second")]
    pub(super) settle: Span<1, HOUR>,
    #[serde(default = "nothing")]
    pub(super) recent: Size<0, { 64 * GIB }>,
    #[serde(default)]
    pub(super) retry: Retry,
    #[serde(default = "stub")]
    pub(super) on_gone: OnGone,
    #[serde(default = "stop")]
    pub(super) on_out_of_range: OnOutOfRange,
    #[serde(default = "thirty_seconds")]
    pub(super) shutdown: Span<1, HOUR>,
    #[serde(default)]
    pub(super) outputs: BTreeMap<String, Output>,
    #[serde(default)]
    pub(super) routes: BTreeMap<String, Route>,
}

fn default_cluster() -> String {
    DEFAULT_CLUSTER.to_owned()
}

fn one_second() -> Span<1, HOUR> {
    Span::seconds(1)
}

fn thirty_seconds() -> Span<1, HOUR> {
    Span::seconds(30)
}

fn nothing() -> Size<0, { 64 * GIB }> {
    Size(0)
}

fn stub() -> OnGone {
    OnGone::Stub
}

fn stop() -> OnOutOfRange {
    OnOutOfRange::Stop
}

/// `guest = { … }`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Guest {
    pub(super) module: PathBuf,
    #[serde(default = "sixty_four_mebibytes")]
    pub(super) memory: Size<{ 64 * KIB }, { 16 * GIB }>,
    #[serde(default = "ten_seconds")]
    pub(super) deadline: Span<1, HOUR>,
    #[serde(default)]
    pub(super) settings: toml::Table,
}

fn sixty_four_mebibytes() -> Size<{ 64 * KIB }, { 16 * GIB }> {
    Size(64 * MIB)
}

fn ten_seconds() -> Span<1, HOUR> {
    Span::seconds(10)
}

/// `batch = { … }`.
#[derive(Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Batch {
    pub(super) messages: Count<1, 1_000_000>,
    /// The arenas of a batch end at 4 GiB, and one message on top of this may have 2 GiB.
    pub(super) bytes: Size<1, GIB>,
    pub(super) wait: Span<0, MINUTE>,
}

impl Default for Batch {
    fn default() -> Self {
        Self { messages: Count(1_000), bytes: Size(MIB), wait: Span::millis(20) }
    }
}

/// `open = { … }`.
#[derive(Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Open {
    pub(super) messages: Count<1, 1_000_000_000>,
    pub(super) age: Span<1, YEAR>,
    pub(super) grace: Span<0, YEAR>,
    pub(super) then: OpenThen,
}

impl Default for Open {
    fn default() -> Self {
        Self { messages: Count(1_000_000), age: Span::seconds(600), grace: Span::seconds(30), then: OpenThen::Reject }
    }
}

/// `retry = { … }`.
#[derive(Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Retry {
    pub(super) attempts: Count<1, 100>,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: Count(5) }
    }
}

/// `[pipelines.<name>.outputs.<name>]`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Output {
    pub(super) topic: String,
}

/// `[pipelines.<name>.routes.<name>]`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Route {
    pub(super) topic: String,
    #[serde(default)]
    pub(super) mode: Mode,
    #[serde(default = "same")]
    pub(super) partition: PartitionChoice,
    #[serde(default = "now")]
    pub(super) timestamp: TimestampChoice,
    #[serde(default = "original")]
    pub(super) key: KeyChoice,
    pub(super) create: Option<Create>,
    #[serde(default)]
    pub(super) limit: Limit,
    #[serde(default = "deadletter")]
    pub(super) dialects: Vec<Dialect>,
}

/// `limit = { … }`, or `"off"`.
pub(super) enum Limit {
    Off,
    On(RouteLimit),
}

/// The table of it.
#[derive(Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct LimitTable {
    pub(super) ratio: Ratio,
    pub(super) consecutive: Count<1, 1_000_000_000>,
    pub(super) then: LimitThen,
}

impl Default for LimitTable {
    fn default() -> Self {
        Self { ratio: Ratio(0.05), consecutive: Count(1_000), then: LimitThen::Pause }
    }
}

impl From<LimitTable> for Limit {
    fn from(LimitTable { ratio, consecutive, then }: LimitTable) -> Self {
        Self::On(RouteLimit { ratio: ratio.0, consecutive: consecutive.0, then })
    }
}

impl Default for Limit {
    fn default() -> Self {
        LimitTable::default().into()
    }
}

fn same() -> PartitionChoice {
    PartitionChoice::Same
}

fn now() -> TimestampChoice {
    TimestampChoice::Now
}

fn original() -> KeyChoice {
    KeyChoice::Original
}

fn deadletter() -> Vec<Dialect> {
    vec![Dialect::Deadletter]
}

/// What a dead letter carries.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    /// The payload.
    #[default]
    Payload,
}

/// `create = { … }`; the ranges are the protocol's.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Create {
    pub(super) partitions: Count<1, 100_000>,
    pub(super) replicas: Count<1, 32_767>,
}
