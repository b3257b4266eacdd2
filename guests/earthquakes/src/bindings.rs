//! Generated.
#![allow(unsafe_code, reason = "generated bindings export and call raw functions")]

use crate::Earthquakes;

wit_bindgen::generate!({
    path: "../../wit",
    inline: "
        package deadletter:earthquakes;
        world guest {
            include deadletter:processor/processor@0.1.0;
            export deadletter:processor/settling@0.1.0;
        }
    ",
    world: "deadletter:earthquakes/guest",
    generate_all,
});

export!(Earthquakes);
