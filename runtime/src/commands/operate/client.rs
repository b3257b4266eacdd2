//! The other end of the admin listener.

use std::{net::Ipv4Addr, net::Ipv6Addr, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::de::DeserializeOwned;

use crate::{
    admin::{Change, Failed},
    config::{Admin, Secret},
    operator::Status,
};

/// Longer than a process takes to find out that a partition or a broker does not answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Bytes of an answer: a hundred thousand partitions.
const LARGEST: u64 = 64 << 20;

pub(super) struct Client {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
}

impl Client {
    pub(super) fn new(url: &str, token: Option<String>) -> Self {
        // Never through a proxy: the listener is on this machine, or in its neighbourhood.
        let config =
            ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false).proxy(None);
        Self { agent: config.build().into(), url: url.trim_end_matches('/').to_owned(), token }
    }

    /// A process on this machine.
    pub(super) fn to(admin: &Admin) -> Self {
        let mut address = admin.listen;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        Self::new(&format!("http://{address}"), admin.token.as_ref().map(Secret::reveal).map(str::to_owned))
    }

    pub(super) fn status(&self) -> Result<Status> {
        self.answered(self.agent.get(format!("{}/status", self.url)).call())
    }

    pub(super) fn change<T: DeserializeOwned>(&self, what: &str, change: &Change) -> Result<T> {
        let mut request = self.agent.post(format!("{}/{what}", self.url)).content_type("application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.answered(request.send(serde_json::to_vec(change)?))
    }

    fn answered<T: DeserializeOwned>(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T> {
        let url = &self.url;
        let mut answer = answer.map_err(|error| {
            anyhow!(
                "nobody answers at {url} ({error}): is the process running, with this [admin] in its configuration?"
            )
        })?;
        let code = answer.status();
        let body = answer.body_mut().with_config().limit(LARGEST).read_to_string();
        let body = body.with_context(|| format!("the answer of {url} is cut short"))?;
        if code.is_success() {
            return serde_json::from_str(&body)
                .with_context(|| format!("what answers at {url} is not deadletter, or another version of it"));
        }
        match serde_json::from_str(&body) {
            Ok(Failed { error }) => bail!("{error}"),
            Err(_) => bail!("{url} answers {code}: {}", body.lines().next().unwrap_or_default()),
        }
    }
}
