//! Reading: header names as bytes, leader epochs, topic ids.

use std::{
    ffi::{CStr, CString, c_int},
    ptr::{self, NonNull},
    slice,
    time::Duration,
};

use rdkafka::{
    bindings as sys,
    client::{Client, ClientContext},
    message::BorrowedMessage,
    types::RDKafkaErrorCode,
};

use crate::message::Header;

/// The headers in order. rdkafka's own accessor panics on a name that is not UTF-8. (librdkafka hands a name out as a C
/// string: a NUL inside of one ends it.)
pub(in crate::kafka) fn headers<'m>(message: &'m BorrowedMessage<'_>) -> impl Iterator<Item = Header<'m>> + use<'m> {
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
pub(in crate::kafka) fn leader_epoch(message: &BorrowedMessage<'_>) -> Option<i32> {
    // SAFETY: the message is borrowed, so its pointer is valid.
    let epoch = unsafe { sys::rd_kafka_message_leader_epoch(message.ptr()) };
    (epoch >= 0).then_some(epoch)
}

/// The broker that a message was fetched from.
pub(in crate::kafka) fn serving_broker(message: &BorrowedMessage<'_>) -> Option<i32> {
    // SAFETY: the message is borrowed, so its pointer is valid.
    let broker = unsafe { sys::rd_kafka_message_broker_id(message.ptr()) };
    (broker >= 0).then_some(broker)
}

/// What a broker says of a topic's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kafka) enum Described {
    /// Its id, the high half first.
    Id([i64; 2]),
    /// It exists, and this broker knows no ids.
    NoId,
    /// There is no such topic.
    Unknown,
    /// Some other error about this topic.
    Failed(RDKafkaErrorCode),
}

/// Asks for topics' ids, and blocks until the answer or the timeout. The answers are in the order of `topics`, which must
/// not repeat a name. `broker` is whom to ask; without, librdkafka chooses.
pub(in crate::kafka) fn describe_topics<C: ClientContext>(
    client: &Client<C>,
    topics: &[CString],
    broker: Option<i32>,
    timeout: Duration,
) -> Result<Vec<Described>, RDKafkaErrorCode> {
    let event = request_description(client, topics, broker, timeout)?;
    // SAFETY: the event is valid until dropped.
    let error = unsafe { sys::rd_kafka_event_error(event.ptr()) };
    if error != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Err(error.into());
    }
    // SAFETY: the conversion answers null unless the event is of this type; it points into the event.
    let result = unsafe { sys::rd_kafka_event_DescribeTopics_result(event.ptr()) };
    if result.is_null() {
        return Err(RDKafkaErrorCode::BadMessage);
    }
    let mut count = 0;
    // SAFETY: `result` is valid as long as the event; `count` is only written to.
    let list = unsafe { sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count) };
    if list.is_null() || count != topics.len() {
        return Err(RDKafkaErrorCode::BadMessage);
    }
    // SAFETY: librdkafka answers with `count` pointers, which are valid as long as the event.
    let list = unsafe { slice::from_raw_parts(list, count) };
    // SAFETY: each is a description in this event, or null.
    Ok(list.iter().map(|topic| unsafe { described(*topic) }).collect())
}

/// SAFETY: `topic` must be null or point to a valid description.
unsafe fn described(topic: *const sys::rd_kafka_TopicDescription_t) -> Described {
    if topic.is_null() {
        return Described::Failed(RDKafkaErrorCode::BadMessage);
    }
    // SAFETY: the description is valid; error and id point into it, and a null error is one without an error.
    let (error, id) = unsafe {
        let error = sys::rd_kafka_error_code(sys::rd_kafka_TopicDescription_error(topic));
        let id = sys::rd_kafka_TopicDescription_topic_id(topic);
        (error, [sys::rd_kafka_Uuid_most_significant_bits(id), sys::rd_kafka_Uuid_least_significant_bits(id)])
    };
    match RDKafkaErrorCode::from(error) {
        RDKafkaErrorCode::NoError if id == [0, 0] => Described::NoId,
        RDKafkaErrorCode::NoError => Described::Id(id),
        RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => Described::Unknown,
        other => Described::Failed(other),
    }
}

fn request_description<C: ClientContext>(
    client: &Client<C>,
    topics: &[CString],
    broker: Option<i32>,
    timeout: Duration,
) -> Result<Owned<sys::rd_kafka_event_t>, RDKafkaErrorCode> {
    let client = client.native_ptr();
    let millis = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
    let mut names: Vec<_> = topics.iter().map(|topic| topic.as_ptr()).collect();
    // SAFETY: the client is borrowed, so alive; each constructor hands out what its destructor takes; the names are
    // copied. Null error buffers of length 0 are allowed. librdkafka copies the options, and keeps its own reference to
    // the queue, before `rd_kafka_DescribeTopics` returns, so that all may be dropped at any time after.
    unsafe {
        let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        let options =
            Owned::new(sys::rd_kafka_AdminOptions_new(client, operation), sys::rd_kafka_AdminOptions_destroy)?;
        sys::rd_kafka_AdminOptions_set_request_timeout(options.ptr(), millis, ptr::null_mut(), 0);
        if let Some(broker) = broker {
            sys::rd_kafka_AdminOptions_set_broker(options.ptr(), broker, ptr::null_mut(), 0);
        }
        let names = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let names = Owned::new(names, sys::rd_kafka_TopicCollection_destroy)?;
        let queue = Owned::new(sys::rd_kafka_queue_new(client), sys::rd_kafka_queue_destroy)?;
        sys::rd_kafka_DescribeTopics(client, names.ptr(), options.ptr(), queue.ptr());
        Owned::new(sys::rd_kafka_queue_poll(queue.ptr(), millis), sys::rd_kafka_event_destroy)
    }
}

/// Something of librdkafka's that we destroy.
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
