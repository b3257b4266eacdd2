//! The rules, as plain functions of a payload.

use serde_json::Value;

/// Code of what is not JSON.
pub const BAD_JSON: &str = "bad-json";
/// Code of quarry blasts, ice quakes and the like.
pub const NOT_AN_EARTHQUAKE: &str = "not-an-earthquake";
/// Code of earthquakes whose location nobody can judge.
pub const NO_LOCATION_QUALITY: &str = "no-location-quality";
/// Code of earthquakes that were still not reviewed when they were settled.
pub const UNREVIEWED: &str = "unreviewed";

/// Without any of these (stations, distance to the nearest, largest angle between two) a location has no known quality.
const QUALITY: [&str; 3] = ["nst", "dmin", "gap"];

/// What becomes of one event.
#[derive(Debug, PartialEq)]
pub enum Judgement {
    /// A reviewed earthquake.
    Accept,
    /// An earthquake located by a machine alone: someone may review it yet.
    Defer,
    /// Not for this consumer.
    Reject {
        /// To group by.
        code: &'static str,
        /// For people.
        reason: String,
    },
}

/// Judges one `GeoJSON` feature.
pub fn judge(payload: Option<&[u8]>) -> Judgement {
    let event: Value = match serde_json::from_slice(payload.unwrap_or_default()) {
        Ok(event) => event,
        Err(error) => return Judgement::Reject { code: BAD_JSON, reason: error.to_string() },
    };
    let property = |name| event.get("properties").and_then(|properties| properties.get(name)).unwrap_or(&Value::Null);
    let kind = property("type");
    if kind != "earthquake" {
        return Judgement::Reject { code: NOT_AN_EARTHQUAKE, reason: format!("its type is {kind}") };
    }
    let unknown: Vec<_> = QUALITY.into_iter().filter(|name| property(name).is_null()).collect();
    if !unknown.is_empty() {
        return Judgement::Reject { code: NO_LOCATION_QUALITY, reason: format!("it has no {}", unknown.join(", ")) };
    }
    if property("status") == "automatic" { Judgement::Defer } else { Judgement::Accept }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = include_str!("../../../examples/earthquakes/earthquakes.jsonl");

    fn code(payload: &str) -> &'static str {
        match judge(Some(payload.as_bytes())) {
            Judgement::Accept => "accept",
            Judgement::Defer => "defer",
            Judgement::Reject { code, .. } => code,
        }
    }

    #[test]
    fn the_feed_of_a_week_is_judged_as_counted_by_hand() {
        let count = |wanted| EVENTS.lines().filter(|event| code(event) == wanted).count();
        let counts = [NOT_AN_EARTHQUAKE, NO_LOCATION_QUALITY, "defer", "accept", BAD_JSON].map(count);
        assert_eq!(counts, [28, 465, 269, 945, 0]);
    }

    #[test]
    fn the_rules_apply_in_their_order() {
        assert_eq!(code(r#"{"properties":{"type":"quarry blast","status":"automatic"}}"#), NOT_AN_EARTHQUAKE);
        assert_eq!(code(r#"{"properties":{"type":"earthquake","status":"automatic"}}"#), NO_LOCATION_QUALITY);
        let located = r#"{"properties":{"type":"earthquake","nst":7,"dmin":0,"gap":"","status":"#;
        assert_eq!(code(&format!("{located}\"automatic\"}}}}")), "defer");
        assert_eq!(code(&format!("{located}\"reviewed\"}}}}")), "accept");
    }

    #[test]
    fn a_reason_names_what_is_missing() {
        let event = br#"{"properties":{"type":"earthquake","nst":7,"dmin":null}}"#;
        let reason = "it has no dmin, gap".to_owned();
        assert_eq!(judge(Some(event)), Judgement::Reject { code: NO_LOCATION_QUALITY, reason });
    }

    #[test]
    fn any_payload_has_a_judgement() {
        assert_eq!(code("{\"properties\":"), BAD_JSON);
        assert_eq!(code("[1, 2]"), NOT_AN_EARTHQUAKE);
        assert_eq!(code("{\"properties\":\"earthquake\"}"), NOT_AN_EARTHQUAKE);
        assert!(matches!(judge(None), Judgement::Reject { code: BAD_JSON, .. }));
        assert!(matches!(judge(Some(b"\xff")), Judgement::Reject { code: BAD_JSON, .. }));
    }
}
