//! One request and one response of HTTP/1.1.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bounds on a request.
const HEAD: usize = 8 << 10;
const HEADERS: usize = 64;
const BODY: usize = 16 << 10;

/// What is asked.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without a query.
    pub(super) path: String,
    /// What follows `Bearer` in the authorization.
    pub(super) token: Option<String>,
    pub(super) body: Vec<u8>,
}

/// What is answered.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) code: u16,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

/// The types of what is answered.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";

impl Response {
    pub(super) fn text(code: u16, body: impl Into<String>) -> Self {
        Self { code, content_type: TEXT, body: body.into() }
    }

    pub(super) fn json(code: u16, body: &impl serde::Serialize) -> Self {
        match serde_json::to_string(body) {
            Ok(body) => Self { code, content_type: JSON, body: body + "\n" },
            Err(error) => Self::text(500, format!("cannot be written as JSON: {error}\n")),
        }
    }

    pub(super) async fn write(&self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let Self { code, content_type, body } = self;
        let head = format!(
            "HTTP/1.1 {code} {}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            phrase(*code),
            body.len()
        );
        to.write_all(head.as_bytes()).await?;
        to.write_all(body.as_bytes()).await?;
        to.shutdown().await
    }
}

fn phrase(code: u16) -> &'static str {
    match code {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

/// Why there is no request.
#[derive(Debug)]
pub(super) enum Bad {
    /// What to answer.
    Answer(Response),
    /// Nobody is there to be answered.
    Gone,
}

impl From<io::Error> for Bad {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

fn bad(code: u16, problem: &str) -> Bad {
    Bad::Answer(Response::text(code, format!("{problem}\n")))
}

/// Reads a whole request, within the bounds.
pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Request, Bad> {
    let mut bytes = Vec::new();
    let (mut request, length, head) = loop {
        if let Some(parsed) = parse(&bytes)? {
            break parsed;
        }
        if bytes.len() >= HEAD {
            return Err(bad(431, "the head of the request is larger than 8 KiB"));
        }
        if from.take((HEAD - bytes.len()) as u64).read_buf(&mut bytes).await? == 0 {
            return Err(Bad::Gone);
        }
    };
    if length > BODY {
        return Err(bad(413, "the body of the request is larger than 16 KiB"));
    }
    request.body = bytes.split_off(head);
    let missing = length.saturating_sub(request.body.len());
    request.body.truncate(length);
    if from.take(missing as u64).read_to_end(&mut request.body).await? < missing {
        return Err(Bad::Gone);
    }
    Ok(request)
}

/// The request without its body, the length of its body and that of its head; `None` while it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<(Request, usize, usize)>, Bad> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(bad(431, "the request has more than 64 headers")),
        Err(error) => return Err(bad(400, &format!("not a request of HTTP/1.1: {error}"))),
    };
    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: parsed.path.unwrap_or_default().split('?').next().unwrap_or_default().to_owned(),
        ..Request::default()
    };
    let mut length = None;
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            let this = value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok()).flatten();
            if this.is_none() || length.is_some_and(|other| Some(other) != this) {
                return Err(bad(400, "the content-length is not a number"));
            }
            length = this;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(bad(400, "a body is taken only with a content-length"));
        } else if header.name.eq_ignore_ascii_case("authorization") {
            let (scheme, token) = value.split_once(' ').unwrap_or_default();
            request.token = scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned());
        }
    }
    Ok(Some((request, length.unwrap_or_default(), head)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn code(bytes: &[u8]) -> Option<u16> {
        match read(&mut &*bytes).await {
            Err(Bad::Answer(response)) => Some(response.code),
            Err(Bad::Gone) => None,
            Ok(request) => panic!("{request:?}"),
        }
    }

    #[tokio::test]
    async fn a_request_is_read_with_its_body_and_its_token() {
        let bytes =
            b"POST /skip?x=1 HTTP/1.1\r\nHost: a\r\nAuthorization: bearer  s3cret \r\ncontent-Length: 2\r\n\r\n{}more";
        let request = read(&mut bytes.as_slice()).await.unwrap();
        assert_eq!((&*request.method, &*request.path, &*request.body), ("POST", "/skip", b"{}".as_slice()));
        assert_eq!(request.token.as_deref(), Some("s3cret"));
    }

    #[tokio::test]
    async fn what_is_no_request_is_answered_or_dropped() {
        assert_eq!(code(b"").await, None);
        assert_eq!(code(b"GET / HTTP/1.1\r\nHost").await, None, "cut short");
        assert_eq!(code(b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n{}").await, None, "cut short");
        assert_eq!(code(b"\x16\x03\x01\x02\x00\x01").await, Some(400), "TLS");
        for length in ["-1", "+1", "1x", "", "99999999999999999999999"] {
            assert_eq!(
                code(format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n").as_bytes()).await,
                Some(400)
            );
        }
        let twice = b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(code(twice).await, Some(400));
        assert_eq!(code(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n").await, Some(400));
        assert_eq!(code(b"POST / HTTP/1.1\r\ncontent-length: 16385\r\n\r\n").await, Some(413));
        assert_eq!(code(format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD)).as_bytes()).await, Some(431));
        assert_eq!(
            code(format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1)).as_bytes()).await,
            Some(431)
        );
    }
}
