//! The listener for operators: where it is, and what it asks for before it changes something.

use std::{fmt, net::SocketAddr};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The shortest token; `openssl rand -hex 16` makes twice as much.
const SHORTEST: usize = 16;

/// `[admin]`.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Address and port.
    pub listen: SocketAddr,
    /// Without one, nothing can be changed through it.
    pub token: Option<Secret>,
}

impl Admin {
    /// The error names the key, and never the token.
    pub(crate) fn new(listen: &str, token: Option<String>) -> Result<Self, (&'static str, String)> {
        let address = listen.parse().ok().filter(|address: &SocketAddr| address.port() > 0);
        let listen = address.ok_or_else(|| {
            ("listen", "must be an address and a port, such as \"127.0.0.1:9464\" or \"[::1]:9464\"".to_owned())
        })?;
        let is_bad = |token: &String| token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic());
        if token.as_ref().is_some_and(is_bad) {
            let what = format!("must have {SHORTEST} characters or more, all of ASCII and none of them a space");
            return Err(("token", what));
        }
        Ok(Self { listen, token: token.map(Secret) })
    }
}

/// A text that is never printed.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// For whoever has to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether somebody else has the same; how long this takes tells nothing of it.
    pub fn is(&self, other: &str) -> bool {
        Sha256::digest(&self.0).ct_eq(&Sha256::digest(other)).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
