//! Messages from lines of text.

use std::io::{BufRead, Read};

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a line of the input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A payload.
    Lines,
    /// `{"key": …, "payload": …, "headers": [{"name": …, "value": …}], "timestamp": …}`: `payload` is required and the
    /// timestamp in milliseconds; a text is its UTF-8, `{"base64": "…"}` other bytes, and null a null.
    Json,
}

/// A line longer than any message that a broker takes. Stops a wrong file from being read as one line.
const MAX_LINE_BYTES: u64 = 128 << 20;

/// Bytes as they are shown: text where they are UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "a text or {\"base64\": \"…\"}")]
pub(super) enum Bytes {
    /// UTF-8.
    Text(String),
    /// Anything.
    Binary {
        /// The standard alphabet, with padding.
        base64: String,
    },
}

impl Bytes {
    /// The bytes as they are shown.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(other) => Self::Binary { base64: STANDARD.encode(other.as_bytes()) },
        }
    }

    fn decode(self) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Binary { base64 } => STANDARD.decode(base64).context("base64"),
        }
    }
}

/// One header as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header<V = Option<Bytes>> {
    /// Any text.
    pub(super) name: String,
    /// `None` is a null.
    pub(super) value: V,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    key: Option<Bytes>,
    #[serde(deserialize_with = "Option::deserialize")]
    payload: Option<Bytes>,
    #[serde(default)]
    headers: Vec<Header>,
    timestamp: Option<i64>,
}

/// A message to be judged; it has no offset yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// `None` is a null key.
    pub(super) key: Option<Vec<u8>>,
    /// `None` is a tombstone.
    pub(super) payload: Option<Vec<u8>>,
    /// In order; names may repeat.
    pub(super) headers: Vec<Header<Option<Vec<u8>>>>,
    /// Milliseconds since the epoch.
    pub(super) timestamp: Option<i64>,
}

/// Reads messages one by one.
pub(super) struct Messages {
    reader: Box<dyn BufRead>,
    name: String,
    format: Format,
    line: u64,
}

impl Messages {
    /// From a reader, whose name is for errors.
    pub(super) fn new(reader: Box<dyn BufRead>, name: String, format: Format) -> Self {
        Self { reader, name, format, line: 0 }
    }

    /// The next one.
    ///
    /// # Errors
    /// The line that is none, by its number.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Message>> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.reader).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line);
            self.line += 1;
            let place = || format!("{}:{}", self.name, self.line);
            if read.with_context(place)? == 0 {
                return Ok(None);
            }
            if u64::try_from(line.len()).is_ok_and(|length| length > MAX_LINE_BYTES) {
                bail!("{}: a line of more than 128 MiB", place());
            }
            line.pop_if(|last| *last == b'\n');
            match self.format {
                Format::Lines => return Ok(Some(Message { payload: Some(line), ..Message::default() })),
                Format::Json if line.trim_ascii().is_empty() => {}
                Format::Json => return parse(&line).map(Some).with_context(place),
            }
        }
    }
}

fn parse(line: &[u8]) -> anyhow::Result<Message> {
    let Line { key, payload, headers, timestamp } = serde_json::from_slice(line)?;
    let decode = |bytes: Option<Bytes>| bytes.map(Bytes::decode).transpose();
    let header = |header: Header| Ok(Header { value: decode(header.value)?, name: header.name });
    if timestamp.is_some_and(|timestamp| timestamp < 0) {
        bail!("timestamp: must not be negative");
    }
    Ok(Message {
        key: decode(key).context("key")?,
        payload: decode(payload).context("payload")?,
        headers: headers.into_iter().map(header).collect::<anyhow::Result<_>>().context("headers")?,
        timestamp,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static [u8], format: Format) -> Result<Vec<Message>, String> {
        let mut messages = Messages::new(Box::new(text), "in".to_owned(), format);
        let all = std::iter::from_fn(|| messages.next().transpose()).collect::<anyhow::Result<_>>();
        all.map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_line_is_a_payload_byte_for_byte() {
        let payloads = read(b"a\r\n\n\xff", Format::Lines).unwrap();
        let payloads: Vec<_> = payloads.into_iter().map(|message| message.payload.unwrap()).collect();
        assert_eq!(payloads, [&b"a\r"[..], b"", b"\xff"]);
    }

    #[test]
    fn a_line_of_json_is_a_message() {
        let line = br#"{"key":{"base64":"/w=="},"payload":"p","headers":[{"name":"a","value":null},{"name":"a","value":""}],"timestamp":7}
            {"payload":null}"#;
        let header = |value| Header { name: "a".to_owned(), value };
        let first = Message {
            key: Some(vec![255]),
            payload: Some(b"p".to_vec()),
            headers: vec![header(None), header(Some(vec![]))],
            timestamp: Some(7),
        };
        assert_eq!(read(line, Format::Json).unwrap(), [first, Message::default()]);
    }

    #[test]
    fn a_line_that_is_no_message_is_named() {
        let error = |line| read(line, Format::Json).unwrap_err();
        assert_eq!(error(b"\n{}"), "in:2: missing field `payload` at line 1 column 2");
        assert!(error(br#"{"payload":3}"#).starts_with("in:1: a text or "));
        assert!(error(br#"{"payload":"","kye":""}"#).starts_with("in:1: unknown field `kye`"));
        assert!(error(br#"{"payload":{"base64":"?"}}"#).starts_with("in:1: payload: base64: "));
        assert_eq!(error(br#"{"payload":"","timestamp":-1}"#), "in:1: timestamp: must not be negative");
    }

    #[test]
    fn bytes_are_shown_as_text_where_they_are_text() {
        assert_eq!(Bytes::new(b"a".to_vec()), Bytes::Text("a".to_owned()));
        let binary = Bytes::new(vec![0xff, 0]);
        assert_eq!(serde_json::to_string(&binary).unwrap(), r#"{"base64":"/wA="}"#);
        assert_eq!(binary.decode().unwrap(), [0xff, 0]);
    }
}
