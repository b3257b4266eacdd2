//! The rules, as plain functions.

use std::{fmt, time::Duration};

use serde_json::Value;

/// The one setting.
const MAX_AGE: &str = "max-age";

/// Units of a duration, in milliseconds.
const UNITS: [(&str, i64); 4] = [("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Why a message is rejected.
#[derive(Debug)]
pub enum Fault {
    /// Both in milliseconds.
    Stale { age: i64, max_age: i64 },
    /// What the parser says.
    NotJson(serde_json::Error),
}

impl Fault {
    /// To group by.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::NotJson(_) => "not-json",
        }
    }

    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale { .. })
    }
}

impl fmt::Display for Fault {
    /// For people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { age, max_age } => {
                let [age, max_age] = [age, max_age].map(|millis| Duration::from_millis(millis.unsigned_abs()));
                write!(f, "it is {age:?} old, more than {MAX_AGE}, which is {max_age:?}")
            }
            Self::NotJson(error) => write!(f, "{error}"),
        }
    }
}

/// `None` accepts: what is as old as allowed or has no timestamp, and is JSON or a tombstone. Age comes first, so that
/// nobody parses what is not looked at now.
pub fn judge(age: Option<i64>, max_age: i64, payload: Option<&[u8]>) -> Option<Fault> {
    if let Some(age) = age.filter(|age| *age > max_age) {
        return Some(Fault::Stale { age, max_age });
    }
    serde_json::from_slice::<Value>(payload?).err().map(Fault::NotJson)
}

/// The setting, in milliseconds: a number with a unit, such as `10m`, or of seconds.
pub fn max_age(settings: &[(String, String)]) -> Result<i64, String> {
    if let Some((name, _)) = settings.iter().find(|(name, _)| name != MAX_AGE) {
        return Err(format!("there is no setting `{name}` (allowed: `{MAX_AGE}`)"));
    }
    let (_, text) = settings.first().ok_or(format!("the setting `{MAX_AGE}` is missing, such as \"10m\""))?;
    let what = "a whole number above 0 with a unit (`s`, `m`, `h` or `d`), such as \"10m\", or of seconds";
    duration(text).ok_or_else(|| format!("`{MAX_AGE}` is \"{text}\" (allowed: {what})"))
}

fn duration(text: &str) -> Option<i64> {
    let with_unit = UNITS.iter().find_map(|(unit, millis)| Some((text.strip_suffix(unit)?, *millis)));
    let (number, millis) = with_unit.unwrap_or((text, 1_000));
    number.trim_end().parse::<i64>().ok()?.checked_mul(millis).filter(|duration| *duration > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<i64> {
        max_age(&[(MAX_AGE.to_owned(), text.to_owned())]).ok()
    }

    #[test]
    fn an_age_has_a_unit_or_is_in_seconds() {
        for (text, millis) in [("90", 90_000), ("1s", 1_000), ("10m", 600_000), ("2 h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(parsed(text), Some(millis), "{text}");
        }
        for text in ["", "m", "0", "0s", "-1m", "1.5h", "1w", "10 minutes", "1h 30m", "9223372036854775807d", "null"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn settings_that_are_wrong_or_missing_are_named() {
        let settings = |name: &str, value: &str| max_age(&[(name.to_owned(), value.to_owned())]).unwrap_err();
        assert_eq!(max_age(&[]).unwrap_err(), "the setting `max-age` is missing, such as \"10m\"");
        assert_eq!(settings("max_age", "10m"), "there is no setting `max_age` (allowed: `max-age`)");
        assert!(settings("max-age", "soon").starts_with("`max-age` is \"soon\" (allowed: a whole number above 0"));
    }

    #[test]
    fn only_what_is_older_than_allowed_is_stale() {
        let fault = |age, payload| judge(age, 1_000, payload).map(|fault| (fault.code(), fault.to_string()));
        let stale = Some(("stale", "it is 61.999s old, more than max-age, which is 1s".to_owned()));
        assert_eq!(fault(Some(61_999), Some(b"{}")), stale);
        assert_eq!(fault(Some(61_999), Some(b"{")), stale);
        assert_eq!(fault(Some(61_999), None), stale);
        for age in [None, Some(1_000), Some(-5)] {
            assert_eq!(fault(age, Some(b"{}")), None);
            assert_eq!(fault(age, None), None, "a tombstone");
            assert_eq!(fault(age, Some(b"{")).map(|(code, _)| code), Some("not-json"));
            assert_eq!(fault(age, Some(b"\xff")).map(|(code, _)| code), Some("not-json"));
        }
    }
}
