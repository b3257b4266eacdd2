//! What is answered on which path.

use serde::{Deserialize, Serialize};

use super::{
    http::{Request, Response},
    metrics,
};
use crate::{
    config::Secret,
    control::{Control, Target},
    message::TopicPartition,
    offset::Offset,
    operator::{Reason, Refusal},
};

/// Bytes of a name and of a reason.
const NAME: usize = 100;
const WHY: usize = 1_000;

/// The body of a request that changes something.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Change {
    /// The pipeline's name; not needed where only one reads the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// As in `orders[3]`; for all but `drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Of the message to skip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// Who asks.
    pub by: String,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// The answer to it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Done {
    /// `paused`, `resumed`, `skipped` or `draining`.
    pub done: String,
    /// As in `orders[3]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Of the message that was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
}

/// The answer where nothing was done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    /// One sentence.
    pub error: String,
}

/// Everything that can be asked for.
pub(super) struct Paths {
    control: Control,
    token: Option<Secret>,
}

impl Paths {
    pub(super) fn new(control: Control, token: Option<Secret>) -> Self {
        Self { control, token }
    }

    pub(super) async fn answer(&self, request: &Request) -> Response {
        let (method, path) = (request.method.as_str(), request.path.as_str());
        match (method, path) {
            ("GET", "/healthz") => Response::text(200, "ok\n"),
            ("GET", "/readyz") => self.ready().await,
            ("GET", "/status") => Response::json(200, &self.control.status().await),
            ("GET", "/metrics") => metrics::response(&self.control.view().await),
            ("POST", "/pause" | "/resume" | "/skip" | "/drain") => {
                self.change(request).await.unwrap_or_else(|refused| refused)
            }
            (_, "/healthz" | "/readyz" | "/status" | "/metrics") => failed(405, "this path takes GET"),
            (_, "/pause" | "/resume" | "/skip" | "/drain") => failed(405, "this path takes POST"),
            _ => failed(
                404,
                "there is /metrics, /healthz, /readyz, /status, and with a token /pause, /resume, /skip, /drain",
            ),
        }
    }

    async fn ready(&self) -> Response {
        let unready = self.control.status().await.unready();
        if unready.is_empty() { Response::text(200, "ready\n") } else { Response::text(503, unready.join("\n") + "\n") }
    }

    async fn change(&self, request: &Request) -> Result<Response, Response> {
        self.authorise(request.token.as_deref())?;
        let change: Change = serde_json::from_slice(&request.body)
            .map_err(|error| failed(400, &format!("the body is not what this path takes: {error}")))?;
        let reason = Reason { by: line(&change.by, "by", NAME)?, why: line(&change.why, "why", WHY)? };
        if reason.by.is_empty() {
            return Err(failed(400, "`by` must say who asks"));
        }
        if request.path == "/drain" {
            tracing::warn!("Draining for an operator, {reason}");
            self.control.drain();
            return Ok(Response::json(202, &Done { done: "draining".to_owned(), partition: None, offset: None }));
        }
        let target = target(&change)?;
        let (done, result) = match (request.path.as_str(), change.offset) {
            ("/skip", None) => return Err(failed(400, "`offset` must say which message to skip")),
            ("/skip", Some(offset)) => {
                let offset = Offset::new(offset).ok_or_else(|| failed(400, &format!("{offset} is not an offset")))?;
                ("skipped", self.control.skip(&target, offset, reason).await)
            }
            (_, Some(_)) => return Err(failed(400, "only /skip takes an `offset`")),
            ("/pause", None) => ("paused", self.control.pause(&target, reason).await),
            (_, None) => ("resumed", self.control.resume(&target, reason).await),
        };
        let partition = target.source.to_string();
        match result {
            Ok(()) => {
                let done = Done { done: done.to_owned(), partition: Some(partition), offset: change.offset };
                Ok(Response::json(200, &done))
            }
            Err(refusal) => Err(refused(&partition, &refusal)),
        }
    }

    fn authorise(&self, given: Option<&str>) -> Result<(), Response> {
        let Some(token) = &self.token else {
            return Err(failed(403, "this process has no admin.token, so nothing can be changed through its listener"));
        };
        match given {
            Some(given) if token.is(given) => Ok(()),
            Some(_) => Err(failed(401, "the token is not the one of this process (admin.token)")),
            None => Err(failed(401, "a change needs the token of this process (admin.token)")),
        }
    }
}

fn failed(code: u16, error: &str) -> Response {
    Response::json(code, &Failed { error: error.to_owned() })
}

fn refused(partition: &str, refusal: &Refusal) -> Response {
    match refusal {
        Refusal::NotHere(_) => failed(404, &refusal.to_string()),
        Refusal::Silent => failed(503, &format!("{partition}: {refusal}")),
        _ => failed(409, &format!("{partition}: {refusal}")),
    }
}

/// A text that goes into the log and into a dead letter: one line.
fn line(text: &str, key: &str, longest: usize) -> Result<String, Response> {
    if text.len() > longest || text.contains(char::is_control) {
        return Err(failed(400, &format!("`{key}` must be one line of at most {longest} bytes")));
    }
    Ok(text.trim().to_owned())
}

fn target(change: &Change) -> Result<Target, Response> {
    let partition = change.partition.as_deref().ok_or_else(|| failed(400, "`partition` must say which one"))?;
    let source: TopicPartition = partition.parse().map_err(|error| failed(400, &format!("`partition`: {error}")))?;
    Ok(Target { pipeline: change.pipeline.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Admin;

    fn paths(token: Option<&str>) -> Paths {
        let admin = Admin::new("127.0.0.1:1", token.map(str::to_owned)).unwrap();
        Paths::new(Control::default(), admin.token)
    }

    async fn post(paths: &Paths, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
        let token = token.map(str::to_owned);
        let request = Request { method: "POST".into(), path: path.into(), token, body: body.into() };
        let response = paths.answer(&request).await;
        (response.code, response.body)
    }

    const TOKEN: &str = "0123456789abcdef";

    #[tokio::test]
    async fn a_change_needs_the_token_and_a_configured_one() {
        let drain = r#"{"by":"ada"}"#;
        assert_eq!(post(&paths(None), "/drain", Some(TOKEN), drain).await.0, 403);
        let paths = paths(Some(TOKEN));
        for wrong in [None, Some(""), Some("0123456789abcdeg"), Some("0123456789abcdef0")] {
            assert_eq!(post(&paths, "/drain", wrong, drain).await.0, 401, "{wrong:?}");
        }
        assert!(!paths.control.status().await.draining);
        assert_eq!(post(&paths, "/drain", Some(TOKEN), drain).await, (202, "{\"done\":\"draining\"}\n".to_owned()));
        assert!(paths.control.status().await.draining);
    }

    #[tokio::test]
    async fn a_body_that_says_too_little_or_too_much_is_refused_in_a_sentence() {
        let paths = paths(Some(TOKEN));
        let long = format!(r#"{{"by":"{}"}}"#, "x".repeat(101));
        for (path, body, problem) in [
            ("/drain", "", "EOF"),
            ("/drain", "[]", "the body is not"),
            ("/drain", r#"{"by":""}"#, "who asks"),
            ("/drain", r#"{"by":"a\nb"}"#, "one line"),
            ("/drain", &long, "at most 100 bytes"),
            ("/drain", r#"{"by":"ada","force":true}"#, "unknown field `force`"),
            ("/pause", r#"{"by":"ada"}"#, "which one"),
            ("/pause", r#"{"by":"ada","partition":"orders"}"#, "orders/3"),
            ("/pause", r#"{"by":"ada","partition":"orders[1]","offset":3}"#, "only /skip"),
            ("/skip", r#"{"by":"ada","partition":"orders[1]"}"#, "which message"),
            ("/skip", r#"{"by":"ada","partition":"orders[1]","offset":-1}"#, "-1 is not an offset"),
        ] {
            let (code, said) = post(&paths, path, Some(TOKEN), body).await;
            assert!(code == 400 && said.contains(problem), "{path} {body}: {code} {said}");
        }
        let unknown = post(&paths, "/resume", Some(TOKEN), r#"{"by":"ada","partition":"orders/1"}"#).await;
        assert!(unknown.0 == 404 && unknown.1.contains("orders[1]"), "{unknown:?}");
    }
}
