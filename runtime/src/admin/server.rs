//! The listener itself.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::AbortHandle,
    time::timeout,
};
use tracing::{debug, info, warn};

use super::{
    http::{self, Bad, Response},
    paths::Paths,
};
use crate::{config::Admin, control::Control};

/// Requests that are served at once; more wait.
const AT_ONCE: usize = 32;

/// How long a client may take to ask, and as long again to hear the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is still read of a request that is refused, so that its sender hears why.
const REFUSED: u64 = 1 << 20;

/// How long nobody is let in after that failed, as without a file descriptor to spare.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// A listener that serves until it is dropped.
pub struct Server(AbortHandle);

impl Server {
    /// Listens, and serves.
    ///
    /// # Errors
    /// The address cannot be had, such as a port that is in use.
    pub async fn start(admin: &Admin, control: Control) -> Result<Self> {
        let address = admin.listen;
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address} (admin.listen): another process may have this port")
        })?;
        info!(%address, changes = admin.token.is_some(), "Listening for operators");
        let paths = Arc::new(Paths::new(control, admin.token.clone()));
        Ok(Self(tokio::spawn(serve(listener, paths)).abort_handle()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn serve(listener: TcpListener, paths: Arc<Paths>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let paths = Arc::clone(&paths);
                tokio::spawn(async move {
                    converse(stream, &paths).await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "Cannot let an operator in");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}

async fn converse(mut stream: TcpStream, paths: &Paths) {
    let response = match timeout(PATIENCE, http::read(&mut stream)).await {
        Ok(Ok(request)) => paths.answer(&request).await,
        Ok(Err(Bad::Answer(response))) => response,
        Ok(Err(Bad::Gone)) => return,
        Err(_) => Response::text(408, "the request did not come within 5 seconds\n"),
    };
    let told = timeout(PATIENCE, async {
        response.write(&mut stream).await?;
        // A socket that is closed with something unread in it may take the answer with it.
        tokio::io::copy(&mut (&mut stream).take(REFUSED), &mut tokio::io::sink()).await
    });
    if let Ok(Err(error)) = told.await {
        debug!(%error, "An operator hung up");
    }
}
