//! One reader thread: its queue, its two clients and what it has measured.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rdkafka::{ClientConfig, error::KafkaResult};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{
    Reading, Want,
    counts::Counters,
    cursor::Cursor,
    plan::{self, Reach, Run, Step},
    threshold::Costs,
    turn::{Measured, Stop, Turn},
};
use crate::{
    config::Kafka,
    kafka::{
        client::{self, Width},
        inbox::{self, Queued},
    },
    message::TopicPartition,
    offset::Offset,
};

/// How long a turn without an answer holds up others the first time; twice that the next time.
const PATIENCE: Duration = Duration::from_millis(250);
/// After how long without work the wide client stops fetching, and after how long without use a client is closed.
const REST: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_mins(1);
/// How long to wait after a client could not be made.
const PAUSE: Duration = Duration::from_millis(100);
/// The time of a shorter stretch says more about scheduling than about reading.
const TELLING_OFFSETS: u64 = 128;

/// A want and how far it is answered.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) want: Want,
    /// How many of its offsets. Only its reader writes it.
    answered: AtomicUsize,
}

impl Job {
    pub(super) const fn new(want: Want) -> Self {
        Self { want, answered: AtomicUsize::new(0) }
    }

    fn rest(&self) -> &[Offset] {
        self.want.offsets.get(self.answered.load(Ordering::Relaxed)..).unwrap_or_default()
    }

    fn answered(&self, reading: &Reading) {
        self.answered.fetch_add(reading.found.len() + reading.missing.len(), Ordering::Relaxed);
    }
}

/// A turn that is asked for, of a want that is answered in turns.
#[derive(Debug)]
pub(super) struct Request {
    job: Arc<Job>,
    answers: mpsc::UnboundedSender<Served>,
    /// The turn's, until it is answered.
    place: Option<OwnedSemaphorePermit>,
    patience: Duration,
}

/// The answers of one turn and the broker that served them; `None` if no message came.
pub(super) type Served = (Reading, Option<i32>);

impl Request {
    /// Whoever gives up drops the other end of `answers`, which ends the request. The channel needs no bound of its own:
    /// each answer was asked for.
    pub(super) const fn new(
        job: Arc<Job>,
        answers: mpsc::UnboundedSender<Served>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self { job, answers, place: Some(place), patience: PATIENCE }
    }
}

/// The state of a reader thread.
pub(super) struct Reader {
    kafka: Kafka,
    servers: String,
    queue: Queue,
    lean: Option<Cursor>,
    wide: Option<Cursor>,
    costs: Costs,
    counters: Arc<Counters>,
}

/// Requests in the order in which they take turns.
struct Queue {
    inbox: inbox::Receiver<Request>,
    waiting: VecDeque<Queued<Request>>,
}

impl Queue {
    /// `Ok(None)` after a while without any.
    fn next(&mut self) -> Result<Option<Queued<Request>>, inbox::Closed> {
        self.waiting.extend(self.inbox.try_iter());
        match self.waiting.pop_front() {
            Some(request) => Ok(Some(request)),
            None => inbox::receive(&self.inbox, REST),
        }
    }

    fn others_wait(&mut self) -> bool {
        self.waiting.extend(self.inbox.try_iter());
        !self.waiting.is_empty()
    }
}

impl Reader {
    pub(super) fn new(kafka: &Kafka, servers: &str, inbox: inbox::Receiver<Request>, counters: Arc<Counters>) -> Self {
        let queue = Queue { inbox, waiting: VecDeque::new() };
        let (kafka, servers) = (kafka.clone(), servers.to_owned());
        Self { kafka, servers, queue, lean: None, wide: None, costs: Costs::default(), counters }
    }

    /// Serves until nobody can ask any more.
    pub(super) fn run(mut self) {
        while let Ok(request) = self.queue.next() {
            match request {
                Some(request) => self.serve(request),
                None => self.wide.iter_mut().for_each(Cursor::rest),
            }
            for client in [&mut self.lean, &mut self.wide] {
                if client.as_ref().is_some_and(|cursor| cursor.idle() > IDLE) {
                    *client = None;
                }
            }
        }
    }

    /// One turn. A request that got no answer in it goes to the back of the queue.
    fn serve(&mut self, mut request: Queued<Request>) {
        if request.item.answers.is_closed() || request.item.job.rest().is_empty() {
            return;
        }
        if let Some((reading, broker)) = self.turn(&request.item) {
            request.item.job.answered(&reading);
            let reading = Reading { share: request.item.place.take().map(Arc::new), ..reading };
            // Whoever asked may have given up.
            drop(request.item.answers.send((reading, broker)));
        } else {
            request.item.patience = request.item.patience.saturating_mul(2);
            self.queue.waiting.push_back(request);
        }
        // While it is assigned and not read from, it spins.
        if let Some(lean) = &mut self.lean {
            lean.rest();
        }
    }

    fn turn(&mut self, request: &Request) -> Option<Served> {
        let Job { want, .. } = &*request.job;
        let mut turn = Turn::new(want, request.job.rest());
        loop {
            let reach = self.costs.reach(self.kafka.shadow.seek_threshold, &want.source);
            let Some(run) = Run::at_front(turn.rest(), reach.threshold) else { break };
            if self.read(&mut turn, run, reach, request) == Stop::Stalled {
                break;
            }
        }
        turn.finish()
    }

    /// Reads one run, or the part of it that the turn has bytes for.
    fn read(&mut self, turn: &mut Turn<'_>, run: Run, reach: Reach, request: &Request) -> Stop {
        let source = &request.job.want.source;
        let wide = self.wide.as_ref().and_then(|cursor| cursor.position(source));
        let step = plan::step(run, wide, reach);
        let width = match step {
            Step::Continue => Width::Wide,
            Step::Position(width) => width,
        };
        let client = match width {
            Width::Lean => &mut self.lean,
            Width::Wide => &mut self.wide,
        };
        let mut placed = None;
        let ready = opened(client, || client::shadow(&self.kafka, &self.servers, width)).and_then(|cursor| {
            if matches!(step, Step::Position(_)) {
                self.counters.positionings.add(1);
                placed = Some(Instant::now());
                turn.place(cursor, run.first)?;
            }
            Ok(cursor)
        });
        let cursor = match ready {
            Ok(cursor) => cursor,
            Err(error) => {
                tracing::warn!("a shadow reader cannot go to {source}@{}: {error}", run.first);
                *client = None;
                thread::sleep(PAUSE);
                return Stop::Stalled;
            }
        };
        cursor.touch();
        let queue = &mut self.queue;
        let mut give_up = |quiet| request.answers.is_closed() || quiet >= request.patience && queue.others_wait();
        let (why, measured) = turn.read(cursor, run.last, placed, &mut give_up);
        self.measure(source, width, measured);
        why
    }

    fn measure(&mut self, source: &TopicPartition, width: Width, measured: Measured) {
        self.counters.bytes.add(measured.stretch.bytes as u64);
        self.counters.read_through.add(measured.unwanted);
        if let Some(positioning) = measured.positioning {
            self.costs.positioned(positioning);
        }
        let mut stretch = measured.stretch;
        // The lean client waits for each fetch, so its pace is no measure for reading through.
        let tells = width == Width::Wide && stretch.offsets >= TELLING_OFFSETS;
        stretch.took = stretch.took.filter(|_| tells);
        self.costs.read(source, stretch);
    }
}

/// The client, made on first use.
fn opened(client: &mut Option<Cursor>, config: impl FnOnce() -> ClientConfig) -> KafkaResult<&mut Cursor> {
    match client {
        Some(cursor) => Ok(cursor),
        none => Ok(none.insert(Cursor::new(&config())?)),
    }
}
