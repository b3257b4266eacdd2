//! From a file to a [`Config`].

use std::{
    collections::BTreeMap,
    fs::File as Source,
    io::{self, Read},
    path::Path,
    thread::available_parallelism,
};

use serde::Deserialize;
use toml::de::{DeTable, Deserializer};

use super::{
    Admin, BatchLimits, Brokers, Config, ConfigError, CreateTopic, DEFAULT_CLUSTER, Guest, Kafka, OpenLimits, Output,
    Pipeline, Properties, RetryLimits, Route, Shadow, check,
    environment::{Environment, expand},
    error::Broken,
    file,
    key::{Key, Outline, line},
    memory::Shares,
    value::Property,
};
use crate::kafka::client;

/// A configuration is a page of text. Stops a device or a wrong path from being read without end.
const MAX_FILE_BYTES: u64 = 1 << 20;

impl Config {
    /// Reads and checks a configuration, without the network and without the guest's module. The values of `[kafka]` may
    /// name variables of the environment.
    ///
    /// # Errors
    /// Everything that is wrong, by line and key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        parse(path, &read(path)?, &|name| std::env::var_os(name))
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ConfigError::file(path, "no such file"),
        io::ErrorKind::IsADirectory => ConfigError::file(path, "is a folder, not a file"),
        _ => ConfigError::file(path, format!("cannot be read: {error}")),
    };
    let mut bytes = Vec::new();
    Source::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_FILE_BYTES) {
        return Err(ConfigError::file(path, "is larger than 1 MiB: not a configuration"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = line(error.as_bytes(), error.utf8_error().valid_up_to());
        ConfigError::line(path, line, "is not UTF-8 text")
    })
}

impl Admin {
    /// Reads `[admin]` alone, for whoever only wants to find the process that runs with this configuration: the rest
    /// must be well-formed, but the variables that it names need not be set.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load(path: &Path) -> Result<Option<Self>, ConfigError> {
        let environment: Environment<'_> = &|name| std::env::var_os(name);
        resolve(path, &read(path)?, environment, |resolver, file| file.admin.and_then(|typed| resolver.admin(typed)))
    }
}

/// The pure part of [`Config::load`].
pub(super) fn parse(path: &Path, text: &str, environment: Environment<'_>) -> Result<Config, ConfigError> {
    resolve(path, text, environment, |resolver, file| {
        let config = resolver.config(file);
        resolver.broken.extend(check::rules(&config));
        config
    })
}

fn resolve<T>(
    path: &Path,
    text: &str,
    environment: Environment<'_>,
    wanted: impl FnOnce(&mut Resolver<'_>, file::File) -> T,
) -> Result<T, ConfigError> {
    let document = DeTable::parse(text).map_err(|error| ConfigError::syntax(path, text, &error))?;
    let outline = Outline::new(document.get_ref());
    let file = file::File::deserialize(Deserializer::from(document))
        .map_err(|error| ConfigError::toml(path, text, &outline, &error))?;
    let mut resolver = Resolver {
        folder: path.parent().unwrap_or_else(|| Path::new("")),
        environment,
        shares: Shares::DEFAULT,
        broken: Vec::new(),
    };
    let found = wanted(&mut resolver, file);
    if resolver.broken.is_empty() { Ok(found) } else { Err(ConfigError::rules(path, text, &outline, resolver.broken)) }
}

/// Turns what was typed into what is used, and notes what is wrong on the way.
struct Resolver<'a> {
    folder: &'a Path,
    environment: Environment<'a>,
    shares: Shares,
    broken: Broken,
}

impl Resolver<'_> {
    fn config(&mut self, file: file::File) -> Config {
        self.shares = Shares::of(&file).unwrap_or_else(|problem| {
            self.broken.push((Key::of(["memory"]), problem));
            Shares::DEFAULT
        });
        let pipelines = file.pipelines.into_iter().map(|(name, typed)| (name.clone(), self.pipeline(name, typed)));
        let pipelines = pipelines.collect();
        let mut clusters = BTreeMap::new();
        for (name, typed) in file.clusters {
            let key = Key::of(["clusters", &name]);
            if name == DEFAULT_CLUSTER {
                self.broken.push((key.clone(), "[kafka] has this name: choose another one".to_owned()));
            }
            clusters.insert(name, self.kafka(&key, typed));
        }
        if let Some(typed) = file.kafka {
            clusters.insert(DEFAULT_CLUSTER.to_owned(), self.kafka(&Key::of(["kafka"]), typed));
        }
        Config {
            memory: file.memory.map(|memory| memory.0),
            clusters,
            admin: file.admin.and_then(|typed| self.admin(typed)),
            pipelines,
        }
    }

    pub(super) fn admin(&mut self, typed: file::Admin) -> Option<Admin> {
        let key = Key::of(["admin"]);
        let token = typed.token.and_then(|Property(token)| match expand(&token, self.environment) {
            Ok(token) => Some(token),
            Err(problem) => {
                self.broken.push((key.at("token"), problem));
                None
            }
        });
        match Admin::new(&typed.listen, token) {
            Ok(admin) => Some(admin),
            Err((part, problem)) => {
                self.broken.push((key.at(part), problem));
                None
            }
        }
    }

    fn kafka(&mut self, key: &Key, typed: file::Kafka) -> Kafka {
        let servers = self.expand(key.at("brokers"), &typed.brokers);
        let shadow = typed.shadow;
        Kafka {
            brokers: if servers == "embedded" { Brokers::Embedded } else { Brokers::Servers(servers) },
            common: self.properties(&key.at("common"), typed.common),
            consumer: self.properties(&key.at("consumer"), typed.consumer),
            producer: self.properties(&key.at("producer"), typed.producer),
            shadow: Shadow {
                readers: size(shadow.readers.0),
                seek_threshold: shadow.seek_threshold,
                deadline: shadow.deadline.0,
                group_id: shadow.group_id,
            },
            unacknowledged: size(self.shares.unacknowledged),
        }
    }

    fn expand(&mut self, key: Key, value: &str) -> String {
        expand(value, self.environment).unwrap_or_else(|problem| {
            self.broken.push((key, problem));
            // One problem is enough: this breaks no other rule.
            "unset".to_owned()
        })
    }

    fn properties(&mut self, key: &Key, typed: BTreeMap<String, Property>) -> Properties {
        let mut properties = BTreeMap::new();
        for (name, Property(value)) in typed {
            match expand(&value, self.environment) {
                Err(problem) => self.broken.push((key.at(&name), problem)),
                Ok(value) => {
                    let refusal = client::refusal(&name, &value).map(|reason| (key.at(&name), reason.to_owned()));
                    self.broken.extend(refusal);
                    properties.insert(name, value);
                }
            }
        }
        Properties(properties)
    }

    fn pipeline(&mut self, name: String, typed: file::Pipeline) -> Pipeline {
        let guest = self.guest(&Key::of(["pipelines", &name, "guest"]), typed.guest);
        let cores = || available_parallelism().map_or(1, usize::from);
        Pipeline {
            name,
            cluster: typed.cluster,
            topics: typed.topics,
            group: typed.group,
            start: typed.start,
            guest,
            batch: BatchLimits {
                messages: size(typed.batch.messages.0),
                bytes: size(typed.batch.bytes.0),
                wait: typed.batch.wait.0,
            },
            commit: typed.commit.0,
            instances: typed.instances.map_or_else(cores, |count| size(count.0)),
            in_hand: size(typed.in_hand.map_or(self.shares.in_hand, |bytes| bytes.0)),
            prefetch: size(self.shares.prefetch),
            recent: size(typed.recent.0),
            open: OpenLimits {
                messages: typed.open.messages.0,
                age: typed.open.age.0,
                grace: typed.open.grace.0,
                then: typed.open.then,
            },
            settle: typed.settle.0,
            retry: RetryLimits { attempts: u32::try_from(typed.retry.attempts.0).unwrap_or(u32::MAX) },
            on_gone: typed.on_gone,
            on_out_of_range: typed.on_out_of_range,
            shutdown: typed.shutdown.0,
            outputs: typed.outputs.into_iter().map(|(name, typed)| (name, Output { topic: typed.topic })).collect(),
            routes: typed.routes.into_iter().map(|(name, typed)| (name, route(typed))).collect(),
        }
    }

    fn guest(&mut self, key: &Key, typed: file::Guest) -> Guest {
        if typed.module.as_os_str().is_empty() {
            self.broken.push((key.at("module"), "must name a file".to_owned()));
        }
        let mut settings = Vec::new();
        for (name, value) in typed.settings {
            match setting(value) {
                Ok(text) => settings.push((name, text)),
                Err(problem) => self.broken.push((key.at("settings").at(&name), problem)),
            }
        }
        let module = self.folder.join(typed.module);
        Guest { module, memory: size(typed.memory.0), deadline: typed.deadline.0, settings }
    }
}

fn route(typed: file::Route) -> Route {
    let file::Mode::Payload = typed.mode;
    let number = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    let create = |typed: file::Create| CreateTopic {
        partitions: number(typed.partitions.0),
        replicas: number(typed.replicas.0),
    };
    Route {
        topic: typed.topic,
        partition: typed.partition,
        timestamp: typed.timestamp,
        key: typed.key,
        create: typed.create.map(create),
        limit: match typed.limit {
            file::Limit::Off => None,
            file::Limit::On(limit) => Some(limit),
        },
        dialects: typed.dialects,
    }
}

/// The text that a guest gets for a setting.
fn setting(value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text),
        value if has_json(&value) => serde_json::to_string(&value).map_err(|error| error.to_string()),
        _ => Err("JSON has no dates, no infinity and no NaN: write them as texts".to_owned()),
    }
}

fn has_json(value: &toml::Value) -> bool {
    match value {
        toml::Value::Datetime(_) => false,
        toml::Value::Float(number) => number.is_finite(),
        toml::Value::Array(elements) => elements.iter().all(has_json),
        toml::Value::Table(table) => table.values().all(has_json),
        toml::Value::String(_) | toml::Value::Integer(_) | toml::Value::Boolean(_) => true,
    }
}

/// Every range in `file` ends far below `usize::MAX` (64 bits: wasmtime's compiler wants them, too).
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
