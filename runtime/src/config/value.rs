//! Values as people write them, each with the range that makes sense.

use std::{fmt, marker::PhantomData, time::Duration};

use bytesize::ByteSize;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};

use super::{
    SeekThreshold,
    file::{Limit, LimitTable},
};

/// A number within a range, both ends included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count<const MIN: u64, const MAX: u64>(pub(super) u64);

/// A number of bytes within a range, such as `"16MiB"`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size<const MIN: u64, const MAX: u64>(pub(super) u64);

/// A time within a range of milliseconds, such as `"20ms"`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<const MIN: u64, const MAX: u64>(pub(super) Duration);

/// A share of a whole, from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio(pub(super) f64);

/// A librdkafka property: a text, or a number or a boolean that is meant as one.
#[derive(Clone)]
pub(super) struct Property(pub(super) String);

impl<const MIN: u64, const MAX: u64> Span<MIN, MAX> {
    /// A default.
    pub(super) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// A default.
    pub(super) const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

/// Reads a value by trying it as a text and as a number; whoever is `None` is not allowed.
struct Reader<T, R> {
    expecting: String,
    read: R,
    value: PhantomData<T>,
}

/// A scalar of the file.
#[derive(Clone, Copy)]
enum Scalar<'a> {
    Text(&'a str),
    Number(u64),
}

impl<T, R: Fn(Scalar<'_>) -> Option<T>> Reader<T, R> {
    fn new(expecting: impl Into<String>, read: R) -> Self {
        Self { expecting: expecting.into(), read, value: PhantomData }
    }
}

impl<T, R: Fn(Scalar<'_>) -> Option<T>> Visitor<'_> for Reader<T, R> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expecting)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read)(Scalar::Text(text)).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let read = u64::try_from(number).ok().and_then(|number| (self.read)(Scalar::Number(number)));
        read.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader::new(format!("a number from {MIN} to {MAX}"), |scalar| match scalar {
            Scalar::Number(number) => (MIN..=MAX).contains(&number).then_some(Self(number)),
            Scalar::Text(_) => None,
        }))
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Size<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = format!("a size from \"{}\" to \"{}\"", human_size(MIN), human_size(MAX));
        deserializer.deserialize_any(Reader::new(expecting, |scalar| match scalar {
            Scalar::Text(text) => size(text).filter(|bytes| (MIN..=MAX).contains(bytes)).map(Self),
            Scalar::Number(_) => None,
        }))
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Span<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let range = Duration::from_millis(MIN)..=Duration::from_millis(MAX);
        let ends = [*range.start(), *range.end()].map(humantime::format_duration);
        let expecting = format!("a time from \"{}\" to \"{}\"", ends[0], ends[1]);
        deserializer.deserialize_any(Reader::new(expecting, move |scalar| match scalar {
            Scalar::Text(text) => humantime::parse_duration(text).ok().filter(|time| range.contains(time)).map(Self),
            Scalar::Number(_) => None,
        }))
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Ratio;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share from 0.0 to 1.0")
            }

            fn visit_f64<E: Error>(self, ratio: f64) -> Result<Ratio, E> {
                let fits = (0.0..=1.0).contains(&ratio);
                fits.then_some(Ratio(ratio)).ok_or_else(|| E::invalid_value(Unexpected::Float(ratio), &self))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Ratio, E> {
                match number {
                    0 => Ok(Ratio(0.0)),
                    1 => Ok(Ratio(1.0)),
                    _ => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                }
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Limit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"off\", or limits such as { ratio = 0.05, consecutive = 1000, then = \"pause\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Limit, E> {
                let off = (text == "off").then_some(Limit::Off);
                off.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Limit, A::Error> {
                LimitTable::deserialize(MapAccessDeserializer::new(map)).map(Limit::from)
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

/// The widest gap that is ever worth reading through, in offsets and in bytes.
const MAX_GAP: u64 = 1 << 30;

impl<'de> Deserialize<'de> for SeekThreshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "\"auto\", a number of offsets, or a size such as \"256KiB\"";
        deserializer.deserialize_any(Reader::new(expecting, |scalar| match scalar {
            Scalar::Text("auto") => Some(Self::Auto),
            Scalar::Text(text) => size(text).filter(|bytes| *bytes <= MAX_GAP).map(Self::Bytes),
            Scalar::Number(offsets) => (offsets <= MAX_GAP).then_some(Self::Offsets(offsets)),
        }))
    }
}

/// A size with its unit: a bare number in quotes would leave the reader to guess.
fn size(text: &str) -> Option<u64> {
    let bytes: ByteSize = text.parse().ok()?;
    text.ends_with(|last: char| last.is_ascii_alphabetic()).then_some(bytes.as_u64())
}

/// As it would be typed, without a loss.
pub(super) fn human_size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units.into_iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or_else(|| format!("{bytes}B"), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

impl<'de> Deserialize<'de> for Property {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Self(text)),
            toml::Value::Integer(number) => Ok(Self(number.to_string())),
            toml::Value::Float(number) => Ok(Self(number.to_string())),
            toml::Value::Boolean(yes) => Ok(Self(yes.to_string())),
            // Reworded where all errors are: nothing that serde says of a property is shown.
            _ => Err(D::Error::custom("not a property")),
        }
    }
}
