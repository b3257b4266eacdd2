//! The owner of one assigned partition: its ledger, the batch in hand, its inbox. One task; everything that it waits
//! for is one arm of one loop, so that an order to end is heard whatever else is going on.

mod answer;
mod ending;
mod head_room;
mod hold;
mod instances;
mod isolation;
mod limits;
mod operate;
mod outbox;
mod poison;
mod reads;
mod recent;
mod redelivery;
mod route_limits;
mod tally;
mod work;

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    time::{Instant as TokioInstant, sleep_until},
};
use tracing::debug;

use self::{
    ending::Ended,
    head_room::Retention,
    hold::Holding,
    instances::Called,
    limits::Pressure,
    outbox::{Ack, Outbox},
    poison::{Case, Reputation},
    reads::Reads,
    recent::Recent,
    route_limits::RouteLimits,
    work::{Due, Work, take_within},
};
pub use self::{
    instances::Instances,
    operate::{LaneBook, Line},
    outbox::Destinations,
    recent::RecentQuota,
    tally::{Held, Tally, TallyBook},
};
use crate::{
    config::{BatchLimits, Pipeline},
    guest::{Instance, Occasion},
    kafka::{
        ShadowReaders, Watermarks,
        source::{Assigned, Delivery, InHand, Order, Outlet, Progress},
    },
    ledger::{Ledger, Rejected},
    message::{Batch, TopicPartition},
    offset::{Offset, OffsetSet},
    operator::Paused,
};

/// Batches that wait for a lane, besides the one in hand.
const INBOX: usize = 2;

/// The bytes of emitted records that a lane keeps until they are acknowledged, before it judges on.
const EMITTED_BYTES: usize = 4 << 20;

/// Rejected offsets that wait for a shadow read, before a lane judges on: reading is slower than judging.
const BACKLOG: u64 = 100_000;

/// After a failed delivery or read, the next try waits this long.
const BACK_OFF: Duration = Duration::from_secs(1);

/// What the lanes of a pipeline share.
pub struct Shared {
    /// The pipeline's configuration.
    pub pipeline: Pipeline,
    /// The guest and its pool.
    pub instances: Arc<Instances>,
    /// Where its records go.
    pub destinations: Arc<Destinations>,
    /// The cluster's shadow readers.
    pub shadow: ShadowReaders,
    /// The bytes that its lanes may keep of what is open.
    pub recent: Arc<RecentQuota>,
    /// Where the log begins; `None` where nothing is ever deleted.
    pub watermarks: Option<Watermarks>,
    /// What the pipeline has done.
    pub tally: TallyBook,
    /// Its lanes.
    pub lanes: LaneBook,
}

/// A call that is running. Dropping it drops the instance that runs it.
struct Calling {
    due: Due,
    future: Pin<Box<dyn Future<Output = Called> + Send>>,
}

/// One partition while it is ours.
pub struct Lane {
    shared: Arc<Shared>,
    source: TopicPartition,
    born: Instant,
    ledger: Ledger,
    inbox: mpsc::Receiver<Delivery>,
    inbox_is_open: bool,
    orders: mpsc::UnboundedReceiver<Order>,
    progress: Arc<Progress>,
    /// The instance of a guest that settles, between calls.
    instance: Option<Instance>,
    calling: Option<Calling>,
    /// What the guest failed at, while it is looked into.
    case: Option<Case>,
    reputation: Reputation,
    holding: Option<Holding>,
    next: Option<InHand>,
    /// The most messages of a batch.
    most: usize,
    outbox: Outbox,
    acks: mpsc::UnboundedReceiver<Ack>,
    emitted_bytes: usize,
    backlog: Rejected,
    reads: Reads,
    back_off_until: Option<Instant>,
    /// When the next of those that wait for a retry is due.
    retry_at: Option<Instant>,
    settle_at: Option<Instant>,
    last_call: Instant,
    pressure: Option<Pressure>,
    retention: Retention,
    route_limits: RouteLimits,
    halted: bool,
    /// Whether and why it is halted.
    paused: Option<Paused>,
    /// How often it went on after a pause.
    restarts: u32,
    /// Rejected messages that were too large for their route with all headers.
    lean: OffsetSet,
    /// Its dead letter will never be acknowledged, not even without the payload.
    stub_refused: Option<Offset>,
    /// An emitted record will never be acknowledged.
    emit_refused: bool,
    ending: Option<ending::Ending>,
}

impl Lane {
    /// Makes the lane of a partition that was just assigned and lets it run.
    pub fn spawn(shared: &Arc<Shared>, assigned: Assigned) -> Outlet {
        let (batches, inbox) = mpsc::channel(INBOX);
        let (orders_sender, orders) = mpsc::unbounded_channel();
        let progress = Arc::new(Progress::new(assigned.start));
        let source = assigned.source.clone();
        let recent = Recent::new(Arc::clone(&shared.recent));
        let (outbox, acks) = Outbox::new(Arc::clone(&shared.destinations), assigned.source.clone());
        let lane = Self {
            shared: Arc::clone(shared),
            source: assigned.source,
            born: Instant::now(),
            ledger: Ledger::new(assigned.start, shared.pipeline.retry.attempts),
            inbox,
            inbox_is_open: true,
            orders,
            progress: Arc::clone(&progress),
            instance: None,
            calling: None,
            case: None,
            reputation: Reputation::default(),
            holding: None,
            next: None,
            most: shared.pipeline.batch.messages,
            outbox,
            acks,
            emitted_bytes: 0,
            backlog: Rejected::default(),
            reads: Reads::new(shared.shadow.clone(), assigned.topic_id, recent),
            retention: Retention::new(shared.watermarks.clone(), source),
            route_limits: RouteLimits::new(&shared.pipeline.routes),
            back_off_until: None,
            retry_at: None,
            settle_at: None,
            last_call: Instant::now(),
            pressure: None,
            halted: false,
            paused: None,
            restarts: 0,
            lean: OffsetSet::new(),
            stub_refused: None,
            emit_refused: false,
            ending: None,
        };
        shared.tally.add(|tally| _ = tally.halted.remove(&lane.source));
        shared.lanes.add(lane.source.clone(), &orders_sender, &progress);
        tokio::spawn(lane.run());
        Outlet { batches, orders: orders_sender, progress }
    }

    async fn run(mut self) {
        let ended = loop {
            self.begin_call();
            self.begin_reads();
            self.progress.publish(self.ledger.committable());
            if let Some(ended) = self.ended() {
                break ended;
            }
            let wants_batch = self.wants_batch();
            let may_read = self.may_read();
            let may_send = !self.outbox.is_empty() && !self.is_backing_off();
            let has_open = self.ledger.open_count() > 0;
            let wake = TokioInstant::from_std(self.wake());
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => break Ended::Abandoned,
                },
                Some(ack) = self.acks.recv() => self.heard(ack),
                called = finish(&mut self.calling) => self.answered(called),
                read = self.reads.next(), if may_read => self.have_read(read),
                () = self.outbox.send_all(), if may_send => {}
                delivery = self.inbox.recv(), if wants_batch => {
                    self.inbox_is_open = delivery.is_some();
                    self.next = delivery.and_then(|delivery| self.wanted(delivery));
                }
                low = self.retention.next(), if has_open => self.watch_retention(low),
                () = sleep_until(wake) => self.look_at_the_clock(),
            }
        };
        self.forget_hold();
        debug!(partition = %self.source, committable = %self.ledger.committable(), ?ended, "Lane ended");
    }

    /// Time on the ledger's clock.
    fn now(&self) -> Duration {
        self.born.elapsed()
    }

    /// Whether the guest may be called at all.
    fn may_call(&self) -> bool {
        !self.halted
            && self.calling.is_none()
            && self.outbox.is_empty()
            && self.emitted_bytes < EMITTED_BYTES
            && self.backlog.len() < BACKLOG
    }

    /// Whether it may be given other messages than those that are lost.
    fn may_go_on(&self) -> bool {
        self.may_call() && self.case.is_none() && self.ledger.lost().is_empty() && !self.is_holding()
    }

    /// A paused lane takes what is on its way to it, and drops it: it takes no room from the others.
    fn wants_batch(&self) -> bool {
        self.inbox_is_open && (self.halted || self.next.is_none() && self.pressure.is_none() && self.may_go_on())
    }

    /// What was sent before it went on after a pause comes again.
    fn wanted(&self, delivery: Delivery) -> Option<InHand> {
        (!self.halted && delivery.restarts == self.restarts).then_some(delivery.in_hand)
    }

    /// Whether it may be asked for verdicts: it has everything that is open, or will not be given it now.
    fn may_settle(&self) -> bool {
        let complete = self.case.is_none() && self.ledger.lost().is_empty();
        self.may_call()
            && self.shared.instances.are_owned()
            && self.ledger.has_open()
            && (complete || self.is_holding() || self.is_closed())
    }

    /// A batch is no larger than this.
    fn batch_limits(&self) -> BatchLimits {
        BatchLimits { messages: self.most, ..self.shared.pipeline.batch }
    }

    /// Begins the call that is due, if one is.
    fn begin_call(&mut self) {
        if !self.may_call() {
            return;
        }
        let Some(due) = self.due_work() else { return };
        if let Some(in_hand) = due.work.in_hand() {
            self.hand_out(&due.work, &in_hand.batch);
        }
        let request = due.request(self.source.clone());
        let future = Box::pin(Arc::clone(&self.shared.instances).call(self.instance.take(), request));
        self.calling = Some(Calling { due, future });
    }

    fn hand_out(&mut self, work: &Work, batch: &Batch) {
        if let Work::Batch(_) = work {
            self.ledger.deliver(batch.offsets(), batch.leader_epochs(), self.born.elapsed());
        } else {
            self.ledger.redelivered(batch.offsets());
        }
        let messages = batch.len() as u64;
        self.shared.tally.add(|tally| match work {
            Work::Batch(_) => tally.delivered += messages,
            Work::Redelivery(_) => tally.redelivered += messages,
            Work::Retry(_) => tally.retried += messages,
            Work::Part(_) | Work::Settle(_) => {}
        });
    }

    /// What the guest is to do next: first what is lost, then what it failed at, then what is due or new.
    fn due_work(&mut self) -> Option<Due> {
        if !self.is_closed() && !self.is_holding() {
            if let Some(in_hand) = self.take_lost() {
                return Some(Due::new(Work::Redelivery(in_hand)));
            }
            if !self.to_redeliver().is_empty() {
                return None;
            }
            if self.case.is_some() {
                return self.take_part();
            }
        }
        // Before the next batch: under load there is always one.
        if let Some(occasion) = self.due_occasion() {
            return Some(Due::new(Work::Settle(occasion)));
        }
        if !self.may_go_on() {
            return None;
        }
        if let Some(in_hand) = self.take_retry() {
            return Some(Due::new(Work::Retry(in_hand)));
        }
        if self.pressure.is_some() {
            return None;
        }
        let limits = self.batch_limits();
        take_within(&mut self.next, limits).map(|in_hand| Due::new(Work::Batch(in_hand)))
    }

    /// Whether and why the guest is to settle now.
    fn due_occasion(&mut self) -> Option<Occasion> {
        if !self.may_settle() {
            return None;
        }
        if self.nothing_comes()
            && let Some(ending) = &mut self.ending
        {
            return ending.tell_last().then_some(Occasion::Last);
        }
        if let Some(pressure) = &mut self.pressure
            && pressure.is_news()
        {
            return Some(Occasion::Pressure);
        }
        let due = self.settle_at.is_some_and(|at| at <= Instant::now());
        due.then_some(if self.pressure.is_some() { Occasion::Pressure } else { Occasion::Tick })
    }
}

/// The end of the running call; never, while there is none.
async fn finish(calling: &mut Option<Calling>) -> (Due, Called) {
    match calling {
        Some(running) => {
            let called = (&mut running.future).await;
            let due = Due { took: called.took, ..running.due.clone() };
            *calling = None;
            (due, called)
        }
        None => std::future::pending().await,
    }
}
