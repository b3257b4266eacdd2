//! The calls of librdkafka that rdkafka does not wrap, or wraps with a panic, and some of the C library beneath it. The
//! only unsafe code of the project.
#![allow(unsafe_code, reason = "librdkafka is C; each block says why it is sound")]

use std::{
    borrow::Cow,
    ffi::{CStr, CString, c_int, c_void},
    mem::MaybeUninit,
    ptr::{self, NonNull},
    slice,
    time::Duration,
};

use rdkafka::{
    Message as _, TopicPartitionList, bindings as sys,
    client::{Client, ClientContext},
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    message::BorrowedMessage,
    producer::{BaseProducer, PARTITION_UA, Producer as _, ProducerContext},
    types::RDKafkaErrorCode,
};

use crate::{
    message::Header,
    record::{Record, RecordHeader},
};

// === Messages ===

/// The headers in order. rdkafka's own accessor panics on a name that is not UTF-8. (librdkafka hands a name out as a C
/// string: a NUL inside of one ends it.)
pub(super) fn headers<'m>(message: &'m BorrowedMessage<'_>) -> impl Iterator<Item = Header<'m>> + use<'m> {
    let mut list = ptr::null_mut();
    // SAFETY: the message is borrowed, so its pointer is valid; `list` is only written to.
    let found = unsafe { sys::rd_kafka_message_headers(message.ptr(), &raw mut list) };
    let count = match found {
        // SAFETY: on success `list` points to headers, which belong to the message and live as long as it.
        sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => unsafe { sys::rd_kafka_header_cnt(list) },
        _ => 0,
    };
    // SAFETY: as above; the message is borrowed for as long as what is returned.
    (0..count).map_while(move |index| unsafe { header(list, index) })
}

/// SAFETY: `list` must be valid and unchanged for `'m`.
unsafe fn header<'m>(list: *const sys::rd_kafka_headers_t, index: usize) -> Option<Header<'m>> {
    let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
    // SAFETY: `list` is valid, an index past the end is answered with an error; the rest is only written to.
    let error = unsafe { sys::rd_kafka_header_get_all(list, index, &raw mut name, &raw mut value, &raw mut size) };
    if error != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR || name.is_null() {
        return None;
    }
    // SAFETY: librdkafka terminates names with a NUL; they live as long as the list.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    // SAFETY: a value that is not null has `size` bytes, which live as long as the list.
    let value = (!value.is_null()).then(|| unsafe { slice::from_raw_parts(value.cast(), size) });
    Some(Header { name, value })
}

/// The leader epoch under which a message was written; `None` where the broker does not say.
pub(super) fn leader_epoch(message: &BorrowedMessage<'_>) -> Option<i32> {
    // SAFETY: the message is borrowed, so its pointer is valid.
    let epoch = unsafe { sys::rd_kafka_message_leader_epoch(message.ptr()) };
    (epoch >= 0).then_some(epoch)
}

/// The broker that a message was fetched from.
pub(super) fn serving_broker(message: &BorrowedMessage<'_>) -> Option<i32> {
    // SAFETY: the message is borrowed, so its pointer is valid.
    let broker = unsafe { sys::rd_kafka_message_broker_id(message.ptr()) };
    (broker >= 0).then_some(broker)
}

// === Topics ===

/// What to ask about topics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Question {
    /// Whom to ask; `None` lets librdkafka choose.
    pub(super) broker: Option<i32>,
    /// Whether to ask what this client may do with them.
    pub(super) permissions: bool,
}

/// A topic that exists.
#[derive(Clone, Debug)]
pub(super) struct Description {
    /// The high half first; `None` where the broker knows no ids.
    pub(super) id: Option<[i64; 2]>,
    pub(super) partitions: i32,
    /// `None` where it was not asked for, or the broker does not say.
    pub(super) allowed: Option<Allowed>,
}

/// What this client may do with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) read: bool,
    pub(super) write: bool,
}

/// What the cluster says of each topic, or its error.
pub(super) type Described = Vec<Result<Description, RDKafkaErrorCode>>;

/// Describes topics, in their order; no name may come twice. Asking does not make a topic. Blocks until the answer or
/// the timeout.
pub(super) fn describe<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    question: Question,
    timeout: Duration,
) -> Result<Described, RDKafkaErrorCode> {
    let names: Result<Vec<_>, _> = topics.iter().map(|topic| CString::new(*topic)).collect();
    let names = names.map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
    let event = request(client, &names, question, timeout)?;
    // SAFETY: the event is valid until dropped.
    let error = unsafe { sys::rd_kafka_event_error(event.ptr()) };
    if error != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Err(error.into());
    }
    let mut count = 0;
    // SAFETY: the conversion answers null unless the event is of this type; what it answers lives as long as the event.
    let list = unsafe {
        let result = sys::rd_kafka_event_DescribeTopics_result(event.ptr());
        if result.is_null() {
            return Err(RDKafkaErrorCode::BadMessage);
        }
        sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count)
    };
    if list.is_null() || count != topics.len() {
        return Err(RDKafkaErrorCode::BadMessage);
    }
    // SAFETY: `count` pointers to descriptions, all of them valid as long as the event.
    Ok(unsafe { slice::from_raw_parts(list, count) }.iter().map(|topic| unsafe { description(*topic) }).collect())
}

/// SAFETY: `topic` must point to a valid description.
unsafe fn description(topic: *const sys::rd_kafka_TopicDescription_t) -> Result<Description, RDKafkaErrorCode> {
    let (mut partitions, mut operations) = (0, 0);
    // SAFETY: the description is valid and what it answers lives as long as it. No error is null, which has no code.
    let (code, id, list) = unsafe {
        sys::rd_kafka_TopicDescription_partitions(topic, &raw mut partitions);
        let list = sys::rd_kafka_TopicDescription_authorized_operations(topic, &raw mut operations);
        let id = sys::rd_kafka_TopicDescription_topic_id(topic);
        let id = [sys::rd_kafka_Uuid_most_significant_bits(id), sys::rd_kafka_Uuid_least_significant_bits(id)];
        (sys::rd_kafka_error_code(sys::rd_kafka_TopicDescription_error(topic)), id, list)
    };
    if code != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Err(code.into());
    }
    let allowed = (!list.is_null()).then(|| {
        use sys::rd_kafka_AclOperation_t as operation;
        // SAFETY: `operations` entries, which live as long as the description.
        let list = unsafe { slice::from_raw_parts(list, operations) };
        let has = |wanted| list.iter().any(|one| *one == wanted || *one == operation::RD_KAFKA_ACL_OPERATION_ALL);
        Allowed {
            read: has(operation::RD_KAFKA_ACL_OPERATION_READ),
            write: has(operation::RD_KAFKA_ACL_OPERATION_WRITE),
        }
    });
    Ok(Description {
        id: Some(id).filter(|id| *id != [0, 0]),
        partitions: i32::try_from(partitions).unwrap_or(i32::MAX),
        allowed,
    })
}

fn request<C: ClientContext>(
    client: &Client<C>,
    topics: &[CString],
    question: Question,
    timeout: Duration,
) -> Result<Owned<sys::rd_kafka_event_t>, RDKafkaErrorCode> {
    let client = client.native_ptr();
    let millis = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
    let mut names: Vec<_> = topics.iter().map(|topic| topic.as_ptr()).collect();
    // SAFETY: the client is borrowed, so alive; each constructor hands out what its destructor takes; names and options
    // are copied; null buffers of length 0 for an error's text are allowed. librdkafka keeps its own reference to the
    // queue, so that ours may go at any time.
    unsafe {
        let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        let options =
            Owned::new(sys::rd_kafka_AdminOptions_new(client, operation), sys::rd_kafka_AdminOptions_destroy)?;
        sys::rd_kafka_AdminOptions_set_request_timeout(options.ptr(), millis, ptr::null_mut(), 0);
        if let Some(broker) = question.broker {
            sys::rd_kafka_AdminOptions_set_broker(options.ptr(), broker, ptr::null_mut(), 0);
        }
        let permissions = c_int::from(question.permissions);
        let error = sys::rd_kafka_AdminOptions_set_include_authorized_operations(options.ptr(), permissions);
        if !error.is_null() {
            sys::rd_kafka_error_destroy(error);
        }
        let names = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let names = Owned::new(names, sys::rd_kafka_TopicCollection_destroy)?;
        let queue = Owned::new(sys::rd_kafka_queue_new(client), sys::rd_kafka_queue_destroy)?;
        sys::rd_kafka_DescribeTopics(client, names.ptr(), options.ptr(), queue.ptr());
        Owned::new(sys::rd_kafka_queue_poll(queue.ptr(), millis), sys::rd_kafka_event_destroy)
    }
}

/// Something of librdkafka's that is ours to destroy.
struct Owned<T> {
    pointer: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// A null is a timeout: nothing came.
    ///
    /// SAFETY: `pointer` must be null or ours to destroy with `destroy`.
    unsafe fn new(pointer: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Result<Self, RDKafkaErrorCode> {
        let pointer = NonNull::new(pointer).ok_or(RDKafkaErrorCode::OperationTimedOut)?;
        Ok(Self { pointer, destroy })
    }

    const fn ptr(&self) -> *mut T {
        self.pointer.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `new` demands that the pointer be ours and this be its destructor.
        unsafe { (self.destroy)(self.pointer.as_ptr()) }
    }
}

// === Commits ===

/// Sends a commit. A poll of the consumer hands what comes of it to `commit_callback`: of one that is sent by
/// `rd_kafka_commit`, which rdkafka uses, nobody hears, since librdkafka tells only a callback that rdkafka never sets.
pub(super) fn commit<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    positions: &TopicPartitionList,
) -> Result<(), RDKafkaErrorCode> {
    let client = consumer.client().native_ptr();
    // SAFETY: the client is borrowed, so alive; the queue is ours to give back, and the list is copied.
    let sent = unsafe {
        let queue = Owned::new(sys::rd_kafka_queue_get_consumer(client), sys::rd_kafka_queue_destroy)?;
        sys::rd_kafka_commit_queue(client, positions.ptr(), queue.ptr(), None, ptr::null_mut())
    };
    match sent {
        sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(error.into()),
    }
}

// === Records ===

/// Why librdkafka did not take a record.
#[derive(Debug)]
pub(super) struct Refused {
    /// Its error code.
    pub(super) code: RDKafkaErrorCode,
    /// What it says, one line.
    pub(super) reason: String,
}

/// A list of headers that is ours until a record takes it.
struct Headers(*mut sys::rd_kafka_headers_t);

impl Headers {
    fn of(headers: &[RecordHeader<'_>]) -> Self {
        // SAFETY: takes a number, returns a list that we own.
        let list = Self(unsafe { sys::rd_kafka_headers_new(headers.len()) });
        for RecordHeader { name, value } in headers {
            let (value, value_len) = memory(value.as_deref());
            // SAFETY: the list is ours; both pointers are good for reads of the lengths given with them (the value's
            // may be null, which librdkafka takes for a null value) and are copied before the call returns.
            unsafe {
                sys::rd_kafka_header_add(list.0, name.as_ptr().cast(), signed(name.len()), value, signed(value_len));
            }
        }
        list
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: not null, so no record has taken it and no one else knows of it.
            unsafe { sys::rd_kafka_headers_destroy(self.0) }
        }
    }
}

/// What librdkafka takes for the time of producing; and so it does for a record of the first millisecond of 1970.
const NOW: i64 = 0;

/// The parts of a record as librdkafka takes them. Whatever it points to lives until [`enqueue`] returns.
struct Parts<'a> {
    topic: &'a CStr,
    partition: i32,
    timestamp: i64,
    key: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
    headers: Headers,
}

/// Hands a copy of the record to the producer, which answers with the opaque number in its delivery callback, exactly
/// once, unless the record is refused here. Does not block.
pub(super) fn produce<C>(producer: &BaseProducer<C>, record: &Record<'_>, opaque: usize) -> Result<(), Refused>
where
    C: ProducerContext<DeliveryOpaque = usize>,
{
    let topic = CString::new(record.topic.as_bytes()).map_err(|_| Refused {
        code: RDKafkaErrorCode::InvalidTopic,
        reason: "the topic's name holds a NUL".to_owned(),
    })?;
    let parts = Parts {
        topic: &topic,
        partition: record.partition.unwrap_or(PARTITION_UA),
        timestamp: record.timestamp.unwrap_or(NOW),
        key: record.key.as_deref(),
        payload: record.payload.as_deref(),
        headers: Headers::of(&record.headers),
    };
    enqueue(producer, parts, opaque)
}

/// As [`produce`], with a record that another producer could not deliver: to the same partition of the same topic. Its
/// timestamp is not told with it.
pub(super) fn produce_again<C>(
    producer: &BaseProducer<C>,
    message: &BorrowedMessage<'_>,
    timestamp: Option<i64>,
    opaque: usize,
) -> Result<(), Refused>
where
    C: ProducerContext<DeliveryOpaque = usize>,
{
    let mut headers = Headers(ptr::null_mut());
    // SAFETY: the message is valid while it is borrowed. What its topic's name points to lives as long as the topic,
    // which the message holds. Headers that are taken off the message are ours to free.
    let topic = unsafe {
        sys::rd_kafka_message_detach_headers(message.ptr(), &raw mut headers.0);
        CStr::from_ptr(sys::rd_kafka_topic_name(message.topic_ptr()))
    };
    let parts = Parts {
        topic,
        partition: message.partition(),
        timestamp: timestamp.unwrap_or(NOW),
        key: message.key(),
        payload: message.payload(),
        headers,
    };
    enqueue(producer, parts, opaque)
}

fn enqueue<C>(producer: &BaseProducer<C>, mut parts: Parts<'_>, opaque: usize) -> Result<(), Refused>
where
    C: ProducerContext<DeliveryOpaque = usize>,
{
    use sys::rd_kafka_vtype_t as vtype;
    let arguments = [
        argument(vtype::RD_KAFKA_VTYPE_TOPIC, Value { cstr: parts.topic.as_ptr() }),
        argument(vtype::RD_KAFKA_VTYPE_PARTITION, Value { i32_: parts.partition }),
        argument(vtype::RD_KAFKA_VTYPE_MSGFLAGS, Value { i: sys::RD_KAFKA_MSG_F_COPY }),
        argument(vtype::RD_KAFKA_VTYPE_KEY, Value { mem: span(parts.key) }),
        argument(vtype::RD_KAFKA_VTYPE_VALUE, Value { mem: span(parts.payload) }),
        argument(vtype::RD_KAFKA_VTYPE_TIMESTAMP, Value { i64_: parts.timestamp }),
        argument(vtype::RD_KAFKA_VTYPE_OPAQUE, Value { ptr: ptr::without_provenance_mut(opaque) }),
        argument(vtype::RD_KAFKA_VTYPE_HEADERS, Value { headers: parts.headers.0 }),
    ];
    // SAFETY: the client lives while the producer is borrowed. Each argument has the member of the union that its type
    // stands for. Topic, key and payload outlive the call and are copied in it (`F_COPY`, under which librdkafka only
    // reads what it has as `*mut`). The opaque is a number, never followed. The headers are valid (or null: none).
    let error = unsafe { sys::rd_kafka_produceva(producer.client().native_ptr(), arguments.as_ptr(), arguments.len()) };
    if error.is_null() {
        // The record has them now.
        parts.headers.0 = ptr::null_mut();
        return Ok(());
    }
    // SAFETY: a returned error is ours: read, its text copied, then destroyed and not used again. On an error the
    // headers stay ours.
    unsafe {
        let code = RDKafkaErrorCode::from(sys::rd_kafka_error_code(error));
        let reason = CStr::from_ptr(sys::rd_kafka_error_string(error)).to_string_lossy().into_owned();
        sys::rd_kafka_error_destroy(error);
        Err(Refused { code, reason })
    }
}

type Value = sys::rd_kafka_vu_s__bindgen_ty_1;

const fn argument(vtype: sys::rd_kafka_vtype_t, u: Value) -> sys::rd_kafka_vu_t {
    sys::rd_kafka_vu_t { vtype, u }
}

/// Null and empty are told apart by the pointer: that of an empty slice is not null.
fn memory(bytes: Option<&[u8]>) -> (*const c_void, usize) {
    bytes.map_or((ptr::null(), 0), |bytes| (bytes.as_ptr().cast(), bytes.len()))
}

fn span(bytes: Option<&[u8]>) -> sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
    let (pointer, size) = memory(bytes);
    sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr: pointer.cast_mut(), size }
}

/// No slice is longer than `isize::MAX`.
const fn signed(length: usize) -> isize {
    length.cast_signed()
}

// === Patterns ===

/// A regular expression of the C library, with which librdkafka matches names of topics.
pub(super) struct Regex(Box<libc::regex_t>);

impl Regex {
    /// # Errors
    /// Why it is none, in the C library's words.
    pub(super) fn new(expression: &CStr) -> Result<Self, String> {
        let mut compiled = Box::new(MaybeUninit::<libc::regex_t>::uninit());
        let flags = libc::REG_EXTENDED | libc::REG_NOSUB;
        // SAFETY: the expression ends with a NUL, and the structure is only written to.
        let failed = unsafe { libc::regcomp(compiled.as_mut_ptr(), expression.as_ptr(), flags) };
        if failed != 0 {
            let mut text = [0_u8; 128];
            // SAFETY: takes the structure of a failure; at most as much as there is room for is written, with a NUL.
            unsafe { libc::regerror(failed, compiled.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
            let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy);
            return Err(text.map_or_else(|_| failed.to_string(), Cow::into_owned));
        }
        // SAFETY: a success fills it.
        Ok(Self(unsafe { compiled.assume_init() }))
    }

    /// Whether it is somewhere in a text.
    pub(super) fn matches(&self, text: &CStr) -> bool {
        // SAFETY: the structure is filled, the text ends with a NUL, and no positions are asked for.
        unsafe { libc::regexec(&raw const *self.0, text.as_ptr(), 0, ptr::null_mut(), 0) == 0 }
    }
}

impl Drop for Regex {
    fn drop(&mut self) {
        // SAFETY: the structure was filled by `regcomp` and is not used any more.
        unsafe { libc::regfree(&raw mut *self.0) }
    }
}

// === Memory ===

/// Keeps what is free in one or two places. A client has a thread for each broker, and each would have an arena of its own,
/// with free memory that no other thread can use; and the buffer of a fetch (`fetch.max.bytes` of [`super::client::source`])
/// would go back to the system when it is freed and come again in pages of zeros, which cost more than what is written to
/// them: it halved what passes through. To be called before threads are started; does nothing with another allocator.
pub fn share_memory_between_threads() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, value) in
        [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, 4 << 20), (libc::M_TRIM_THRESHOLD, 8 << 20)]
    {
        // SAFETY: takes two numbers; one that it does not like is refused, and then its default stays.
        unsafe { libc::mallopt(parameter, value) };
    }
}
