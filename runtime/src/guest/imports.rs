//! The functions of the contract that the host offers.

use std::sync::Arc;

use tracing::Level;

use super::{
    bindings::deadletter::processor::{
        batch::{self, Chunk, Header},
        logging,
        output::{self, Outgoing},
        types,
    },
    limits::{EMITTED_BYTES, EMITTED_RECORD, EMITTED_RECORDS, TEXT},
    state::State,
    text,
};
use crate::{
    message::{Batch, Column, Message},
    verdict::Emit,
};

/// What a record or header takes beside its bytes.
const FIXED: usize = 64;

impl types::Host for State {}

impl State {
    fn column<T: Default>(&self, read: impl FnOnce(&Batch) -> T) -> T {
        self.batch.as_deref().map(read).unwrap_or_default()
    }

    fn chunk(&self, column: impl FnOnce(&Batch) -> &Column, start: u32, max_bytes: u32) -> Chunk {
        let (lengths, bytes) = self.column(|batch| {
            let (lengths, bytes) = column(batch).chunk(start as usize, max_bytes as usize);
            (lengths.to_vec(), bytes.to_vec())
        });
        Chunk { lengths, bytes }
    }
}

fn last_header<'a>(message: &Message<'a>, name: &str) -> Option<&'a [u8]> {
    let named = message.headers().filter(|header| String::from_utf8_lossy(header.name) == name);
    named.last()?.value
}

impl batch::Host for State {
    fn offsets(&mut self) -> Vec<i64> {
        self.column(|batch| batch.offsets().to_vec())
    }

    fn timestamps(&mut self) -> Vec<i64> {
        self.column(|batch| batch.timestamps().to_vec())
    }

    fn attempts(&mut self) -> Vec<u32> {
        self.column(|batch| batch.iter().map(|message| message.attempt).collect())
    }

    fn payload_lengths(&mut self) -> Vec<i32> {
        self.column(|batch| batch.payloads().lengths().to_vec())
    }

    fn payloads(&mut self, start: u32, max_bytes: u32) -> Chunk {
        self.chunk(Batch::payloads, start, max_bytes)
    }

    fn keys(&mut self, start: u32, max_bytes: u32) -> Chunk {
        self.chunk(Batch::keys, start, max_bytes)
    }

    fn header_values(&mut self, name: String, start: u32, max_bytes: u32) -> Chunk {
        let (lengths, bytes) = self.column(|batch| {
            let (mut lengths, mut bytes) = (Vec::new(), Vec::new());
            for message in (start as usize..batch.len()).map_while(|index| batch.get(index)) {
                let value = last_header(&message, &name);
                let added = value.unwrap_or_default();
                if !lengths.is_empty() && bytes.len() + added.len() > max_bytes as usize {
                    break;
                }
                lengths.push(value.map_or(-1, |value| i32::try_from(value.len()).unwrap_or(i32::MAX)));
                bytes.extend_from_slice(added);
            }
            (lengths, bytes)
        });
        Chunk { lengths, bytes }
    }

    fn headers(&mut self, index: u32) -> Vec<Header> {
        self.column(|batch| {
            let headers = batch.get(index as usize).into_iter().flat_map(|message| message.headers());
            let owned = |header: crate::message::Header<'_>| Header {
                name: String::from_utf8_lossy(header.name).into_owned(),
                value: header.value.map(<[u8]>::to_vec),
            };
            headers.map(owned).collect()
        })
    }
}

impl output::Host for State {
    fn emit(&mut self, output: String, records: Vec<Outgoing>) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        if !shared.outputs.contains(&output) {
            return Err(format!("there is no output `{}`", text::cut(output, TEXT)));
        }
        let mut bytes = self.staged.bytes;
        for record in &records {
            let size = size(record);
            if size > EMITTED_RECORD {
                return Err(format!("a record of {size} bytes is too large: {EMITTED_RECORD} are allowed"));
            }
            if record.partition.is_some_and(|partition| partition < 0) || record.timestamp.is_some_and(|at| at < 0) {
                return Err("a partition or timestamp of a record is negative".to_owned());
            }
            bytes = bytes.saturating_add(size);
        }
        if bytes > EMITTED_BYTES || self.staged.emits.len().saturating_add(records.len()) > EMITTED_RECORDS {
            return Err(format!(
                "a call may emit {EMITTED_RECORDS} records and {EMITTED_BYTES} bytes (a record counts {FIXED} more)"
            ));
        }
        self.staged.bytes = bytes;
        self.staged.emits.extend(records.into_iter().map(|record| staged(&output, record)));
        Ok(())
    }
}

fn size(record: &Outgoing) -> usize {
    let length = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
    let headers = record.headers.iter().map(|header| FIXED + header.name.len() + length(&header.value));
    FIXED + length(&record.key) + length(&record.payload) + headers.sum::<usize>()
}

fn staged(output: &str, record: Outgoing) -> Emit {
    Emit {
        output: output.to_owned(),
        key: record.key,
        payload: record.payload,
        headers: record.headers.into_iter().map(|header| (header.name, header.value)).collect(),
        timestamp: record.timestamp,
        partition: record.partition,
    }
}

impl logging::Host for State {
    fn log(&mut self, level: logging::Level, message: String) {
        let level = match level {
            logging::Level::Trace => Level::TRACE,
            logging::Level::Debug => Level::DEBUG,
            logging::Level::Info => Level::INFO,
            logging::Level::Warn => Level::WARN,
            logging::Level::Error => Level::ERROR,
        };
        self.shared.log.line(level, "log", &text::cut(message, TEXT));
    }
}
