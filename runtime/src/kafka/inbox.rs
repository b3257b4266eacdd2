//! A bounded queue from tasks to an OS thread: waiting for room is async, waiting for work blocks, with a time limit.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The other side is gone.
#[derive(Debug, thiserror::Error)]
#[error("the thread that serves this queue has ended")]
pub(super) struct Closed;

/// An item that keeps its place in the queue taken until it is dropped, so that the bound includes what the thread has
/// received and not finished.
#[derive(Debug)]
pub(super) struct Queued<T> {
    pub(super) item: T,
    _place: OwnedSemaphorePermit,
}

/// The tasks' side.
#[derive(Debug)]
pub(super) struct Sender<T> {
    places: Arc<Semaphore>,
    queue: mpsc::Sender<Queued<T>>,
}

/// The thread's side.
pub(super) type Receiver<T> = mpsc::Receiver<Queued<T>>;

/// A queue that holds `bound` items, including those that are being worked on.
pub(super) fn channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let (queue, receiver) = mpsc::channel();
    (Sender { places: Arc::new(Semaphore::new(bound)), queue }, receiver)
}

impl<T> Sender<T> {
    /// Waits for room.
    pub(super) async fn send(&self, item: T) -> Result<(), Closed> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| Closed)?;
        self.queue.send(Queued { item, _place: place }).map_err(|_| Closed)
    }
}

/// Waits for the next item; `Ok(None)` after `idle` without one.
pub(super) fn receive<T>(receiver: &Receiver<T>, idle: Duration) -> Result<Option<Queued<T>>, Closed> {
    match receiver.recv_timeout(idle) {
        Ok(queued) => Ok(Some(queued)),
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_makes_senders_wait_until_an_item_is_finished() {
        let (sender, receiver) = channel(1);
        sender.send(1).await.unwrap();
        let first = receive(&receiver, Duration::ZERO).unwrap().unwrap();
        let waiting = tokio::spawn(async move { sender.send(2).await });
        tokio::task::yield_now().await;
        assert!(receive(&receiver, Duration::ZERO).unwrap().is_none(), "received is not finished");
        drop(first);
        waiting.await.unwrap().unwrap();
        assert_eq!(receive(&receiver, Duration::ZERO).unwrap().unwrap().item, 2);
        assert!(receive(&receiver, Duration::ZERO).is_err(), "the sender is gone");
    }
}
