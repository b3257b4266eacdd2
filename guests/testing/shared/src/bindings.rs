//! Generated: the contract's types and imports, shared by all guests of the tests.
#![allow(unsafe_code, reason = "generated bindings call imported functions")]

wit_bindgen::generate!({ path: "../../../wit", world: "deadletter:processor/imports", generate_all });
