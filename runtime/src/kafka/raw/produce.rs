//! Producing: rdkafka takes header names as `&str`; librdkafka, like Kafka, takes any bytes.

use std::{
    ffi::{CStr, CString, c_void},
    ptr,
};

use rdkafka::{
    Message as _, bindings as sys,
    error::RDKafkaErrorCode,
    message::BorrowedMessage,
    producer::{BaseProducer, PARTITION_UA, Producer as _, ProducerContext},
};

use crate::record::{Record, RecordHeader};

/// Why librdkafka did not take a record.
#[derive(Debug)]
pub(in crate::kafka) struct Refused {
    /// Its error code.
    pub(in crate::kafka) code: RDKafkaErrorCode,
    /// What it says, one line.
    pub(in crate::kafka) reason: String,
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
pub(in crate::kafka) fn produce<C>(
    producer: &BaseProducer<C>,
    record: &Record<'_>,
    opaque: usize,
) -> Result<(), Refused>
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
pub(in crate::kafka) fn produce_again<C>(
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
