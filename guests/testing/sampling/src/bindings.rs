//! Generated.
#![allow(unsafe_code, reason = "generated bindings export and call raw functions")]

use crate::Sampling;

wit_bindgen::generate!({ path: "../../../wit", world: "deadletter:processor/full-lazy-processor", generate_all });

export!(Sampling);
