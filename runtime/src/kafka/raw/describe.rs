//! Topics as the cluster describes them: whether they exist, their partitions, and what this client may do with them.

use std::{
    ffi::{CString, c_int},
    ptr::{self, NonNull},
    slice,
    time::Duration,
};

use rdkafka::{
    bindings as sys,
    client::{Client, ClientContext},
    types::RDKafkaErrorCode,
};

/// A topic that exists.
#[derive(Clone, Debug)]
pub(in crate::kafka) struct Description {
    pub(in crate::kafka) partitions: i32,
    /// `None` where the broker does not say.
    pub(in crate::kafka) allowed: Option<Allowed>,
}

/// What this client may do with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kafka) struct Allowed {
    pub(in crate::kafka) read: bool,
    pub(in crate::kafka) write: bool,
}

/// Describes topics, in their order; no name may come twice. Asking does not make a topic. Blocks until the answer or
/// the timeout.
pub(in crate::kafka) fn describe<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    timeout: Duration,
) -> Result<Vec<Result<Description, RDKafkaErrorCode>>, RDKafkaErrorCode> {
    let names: Result<Vec<_>, _> = topics.iter().map(|topic| CString::new(*topic)).collect();
    let event = request(client, &names.map_err(|_| RDKafkaErrorCode::InvalidTopic)?, timeout)?;
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
    let (code, list) = unsafe {
        sys::rd_kafka_TopicDescription_partitions(topic, &raw mut partitions);
        let list = sys::rd_kafka_TopicDescription_authorized_operations(topic, &raw mut operations);
        (sys::rd_kafka_error_code(sys::rd_kafka_TopicDescription_error(topic)), list)
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
    Ok(Description { partitions: i32::try_from(partitions).unwrap_or(i32::MAX), allowed })
}

fn request<C: ClientContext>(
    client: &Client<C>,
    topics: &[CString],
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
        let error = sys::rd_kafka_AdminOptions_set_include_authorized_operations(options.ptr(), 1);
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
