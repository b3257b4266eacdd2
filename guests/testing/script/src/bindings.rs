//! Generated.
#![allow(unsafe_code, reason = "generated bindings export and call raw functions")]

use crate::Script;

wit_bindgen::generate!({ path: "../../../wit", world: "deadletter:processor/full-processor", generate_all });

export!(Script);
