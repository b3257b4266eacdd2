//! `deadletter status`, `pause`, `resume`, `skip` and `drain`: what an operator tells a running process.

mod client;
mod show;

use std::{env, path::PathBuf};

use anyhow::anyhow;
use clap::Args;

use self::client::Client;
use super::{Failure, print};
use crate::{
    admin::{Change, Done},
    config::Admin,
    message::TopicPartition,
    offset::Offset,
};

/// Where the process is.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Place {
    /// The configuration that the process runs with; its [admin] says where it listens and has the token.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the process listens, such as <http://127.0.0.1:9464>; the token is taken from `DEADLETTER_ADMIN_TOKEN`.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
}

const TOKEN: &str = "DEADLETTER_ADMIN_TOKEN";

impl Place {
    fn client(&self) -> Result<Client, Failure> {
        let Some(file) = &self.config else {
            let url = self.admin.clone().unwrap_or_default();
            if !url.starts_with("http://") {
                return Err(Failure::Input(anyhow!(
                    "--admin must be a URL such as http://127.0.0.1:9464, not {url:?}"
                )));
            }
            return Ok(Client::new(&url, env::var(TOKEN).ok()));
        };
        let admin = Admin::load(file)?.ok_or_else(|| {
            let file = file.display();
            Failure::Input(anyhow!("{file}: there is no [admin] in it: a process listens only where it says so"))
        })?;
        Ok(Client::to(&admin))
    }
}

/// Who asks, and why.
#[derive(Debug, Args)]
struct Asker {
    /// Who asks, for the log and the dead letter; you, unless said otherwise.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Why, for the same.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Which partition.
#[derive(Debug, Args)]
struct Which {
    /// The partition, as orders/3, or 'orders[3]' as in the log.
    partition: TopicPartition,
    /// The pipeline, where several read the partition.
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
}

/// Shows how a process stands.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  deadletter status --config orders.toml")]
pub struct Status {
    #[command(flatten)]
    place: Place,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let status = self.place.client()?.status()?;
        if self.json { print_json(&status) } else { show::status(&status) }
    }
}

/// Pauses a partition.
#[derive(Debug, Args)]
#[command(
    long_about = "Pauses a partition: no more is asked of its guest. What is settled is still committed, and the process keeps the partition. What is open is handed to a fresh instance after `resume`.",
    after_help = "Example:\n  deadletter pause --config orders.toml orders/3 --reason 'bad deploy'"
)]
pub struct Pause {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    asked: Asked,
}

/// Resumes a partition.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  deadletter resume --config orders.toml orders/3")]
pub struct Resume {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    asked: Asked,
}

/// Skips a message.
#[derive(Debug, Args)]
#[command(
    long_about = "Settles an open message of a paused partition: a dead letter with its coordinates, who skipped it and why, but without its payload, goes to the default route. The offset is committed once that is acknowledged.",
    after_help = "Example:\n  deadletter skip --config orders.toml orders/3 183467 --reason 'crashes the parser'"
)]
pub struct Skip {
    #[command(flatten)]
    which: Which,
    /// The offset of the message.
    offset: i64,
    #[command(flatten)]
    asked: Asked,
}

/// Drains a process.
#[derive(Debug, Args)]
#[command(
    long_about = "Lets a process finish what is in hand, flush, commit, leave the group and end with 0, as SIGTERM does. Returns at once.",
    after_help = "Example:\n  deadletter drain --config orders.toml"
)]
pub struct Drain {
    #[command(flatten)]
    asked: Asked,
}

/// What all changes have in common.
#[derive(Debug, Args)]
struct Asked {
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    place: Place,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Pause {
    pub(super) fn execute(self) -> Result<(), Failure> {
        self.asked.change("pause", Some(self.which), None)
    }
}

impl Resume {
    pub(super) fn execute(self) -> Result<(), Failure> {
        self.asked.change("resume", Some(self.which), None)
    }
}

impl Skip {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let offset = self.offset;
        if Offset::new(offset).is_none() {
            return Err(Failure::Input(anyhow!("{offset} is not an offset")));
        }
        if self.asked.asker.reason.is_empty() {
            return Err(Failure::Input(anyhow!(
                "--reason must say why: whoever finds the dead letter will want to know"
            )));
        }
        self.asked.change("skip", Some(self.which), Some(offset))
    }
}

impl Drain {
    pub(super) fn execute(self) -> Result<(), Failure> {
        self.asked.change("drain", None, None)
    }
}

impl Asked {
    fn change(self, what: &str, which: Option<Which>, offset: Option<i64>) -> Result<(), Failure> {
        let (pipeline, partition) = which.map(|which| (which.pipeline, which.partition.to_string())).unzip();
        let Asker { by, reason: why } = self.asker;
        let by = by.or_else(|| env::var("USER").ok()).unwrap_or_else(|| "unknown".to_owned());
        let change = Change { pipeline: pipeline.flatten(), partition, offset, by, why };
        let done: Done = self.place.client()?.change(what, &change)?;
        if self.json {
            return print_json(&done);
        }
        let Done { done, partition, offset } = done;
        let what = partition.map(|partition| format!(" {partition}")).unwrap_or_default();
        let offset = offset.map(|offset| format!(" offset {offset}")).unwrap_or_default();
        print(&format!("{done}{what}{offset}\n"))
    }
}

fn print_json(what: &impl serde::Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string(what).map_err(|error| Failure::Work(error.into()))?;
    print(&(json + "\n"))
}
