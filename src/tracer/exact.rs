//! Floats in JSON as they are: a model that is broken leaves infinities and NaNs, and JSON has words for neither.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use sealed::Read;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// For `#[serde(with = "Exact")]`: a finite float is a number, NaN is `null`, infinities are `"inf"` and `"-inf"`. Of an
/// `Option`, `null` is `None`, and NaN is `"nan"`.
///
/// Every float reads back to its own bits, and every NaN to [`f32::NAN`] or [`f64::NAN`]: sign and payload of a NaN mean
/// nothing and depend on the processor.
pub struct Exact;

impl Exact {
    /// Writes one.
    ///
    /// # Errors
    /// Those of the serialiser.
    pub fn serialize<T: Float, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.write(to)
    }

    /// Reads one.
    ///
    /// # Errors
    /// What is neither a number of this width nor one of the words.
    pub fn deserialize<'de, T: Float, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let read = Option::deserialize(from)?;
        T::read(read).ok_or_else(|| D::Error::custom("a number beyond the range of its type"))
    }
}

impl JsonSchema for Exact {
    fn schema_name() -> Cow<'static, str> {
        "Float".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<Read>::json_schema(generator)
    }
}

/// For `#[serde(with = "ExactList")]`: a list of what [`Exact`] writes.
pub struct ExactList;

impl ExactList {
    /// Writes one.
    ///
    /// # Errors
    /// Those of the serialiser.
    pub fn serialize<S: Serializer>(list: &[f32], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|x| One(*x)))
    }

    /// Reads one.
    ///
    /// # Errors
    /// Those of [`Exact`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
        let list = Vec::<One>::deserialize(from)?;
        Ok(list.into_iter().map(|x| x.0).collect())
    }
}

impl JsonSchema for ExactList {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Floats".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<Exact>::json_schema(generator)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct One(#[serde(with = "Exact")] f32);

/// What [`Exact`] writes and reads.
pub trait Float: Sized + sealed::Float {}
impl<T: sealed::Float> Float for T {}

// In a module of its own, so that the trait is not implemented elsewhere.
mod sealed {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serializer};

    /// What is not `null`.
    #[derive(Deserialize, JsonSchema)]
    #[serde(untagged)]
    #[schemars(inline)]
    pub enum Read {
        /// A finite one.
        Number(f64),
        /// One that is not.
        Word(Word),
    }

    /// Its word.
    #[derive(Deserialize, JsonSchema)]
    #[schemars(inline)]
    pub enum Word {
        /// Infinity.
        #[serde(rename = "inf")]
        Infinity,
        /// Minus infinity.
        #[serde(rename = "-inf")]
        NegativeInfinity,
        /// NaN.
        #[serde(rename = "nan")]
        Nan,
    }

    impl Read {
        pub fn value(self) -> f64 {
            match self {
                Self::Number(x) => x,
                Self::Word(Word::Infinity) => f64::INFINITY,
                Self::Word(Word::NegativeInfinity) => f64::NEG_INFINITY,
                Self::Word(Word::Nan) => f64::NAN,
            }
        }
    }

    pub trait Float: Sized {
        fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error>;
        fn read(from: Option<Read>) -> Option<Self>;
    }
}

/// The word of an infinity.
fn infinite(x: f64) -> Option<&'static str> {
    x.is_infinite()
        .then_some(if x > 0.0 { "inf" } else { "-inf" })
}

impl sealed::Float for f32 {
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match infinite(f64::from(*self)) {
            Some(word) => to.serialize_str(word),
            None if self.is_nan() => to.serialize_none(),
            None => to.serialize_f32(*self),
        }
    }

    fn read(from: Option<Read>) -> Option<Self> {
        match from {
            None => Some(Self::NAN),
            Some(Read::Number(x)) => Some(narrow(x)).filter(|x| x.is_finite()),
            Some(word) => Some(word.value() as Self),
        }
    }
}

impl sealed::Float for f64 {
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match infinite(*self) {
            Some(word) => to.serialize_str(word),
            None if self.is_nan() => to.serialize_none(),
            None => to.serialize_f64(*self),
        }
    }

    fn read(from: Option<Read>) -> Option<Self> {
        Some(from.map_or(Self::NAN, Read::value))
    }
}

impl sealed::Float for Option<f64> {
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(x) if x.is_nan() => to.serialize_str("nan"),
            Some(x) => x.write(to),
            None => to.serialize_none(),
        }
    }

    fn read(from: Option<Read>) -> Option<Self> {
        Some(from.map(Read::value))
    }
}

/// The f32 whose shortest text reads as `x`.
fn narrow(x: f64) -> f32 {
    let near = x as f32;
    let other = if f64::from(near) < x {
        near.next_up()
    } else {
        near.next_down()
    };
    let is_half_way = (f64::from(near) - x).abs() == (f64::from(other) - x).abs();
    // Rounded to f64 a text can fall half way between two f32, and rounding again then takes the wrong one (7.038531e-26).
    if is_half_way && format!("{other:e}").parse() == Ok(x) {
        other
    } else {
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct All {
        #[serde(with = "Exact")]
        single: f32,
        #[serde(with = "Exact")]
        double: f64,
        #[serde(with = "Exact")]
        maybe: Option<f64>,
        #[serde(with = "ExactList")]
        list: Vec<f32>,
    }

    /// Bits, with one NaN for all.
    fn bits(a: &All) -> (u32, u64, Option<u64>, Vec<u32>) {
        let single = |x: f32| if x.is_nan() { f32::NAN } else { x }.to_bits();
        let double = |x: f64| if x.is_nan() { f64::NAN } else { x }.to_bits();
        (
            single(a.single),
            double(a.double),
            a.maybe.map(double),
            a.list.iter().map(|x| single(*x)).collect(),
        )
    }

    proptest! {
        #[test]
        fn f270_every_float_comes_back(
            single in any::<u32>(), double in any::<u64>(), maybe in prop::option::of(any::<u64>()),
            list in prop::collection::vec(any::<u32>(), 0..20),
        ) {
            let all = All {
                single: f32::from_bits(single),
                double: f64::from_bits(double),
                maybe: maybe.map(f64::from_bits),
                list: list.into_iter().map(f32::from_bits).collect(),
            };
            let text = serde_json::to_string(&all).expect("writes");
            let back: All = serde_json::from_str(&text).expect("reads");
            prop_assert_eq!(bits(&all), bits(&back));
        }
    }

    #[test]
    fn f270_the_odd_ones_come_back() {
        let list = vec![
            7.038_531e-26,
            -7.038_531e-26,
            -0.0,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            -f32::NAN,
        ];
        for maybe in [None, Some(f64::NAN), Some(f64::NEG_INFINITY), Some(0.1)] {
            let all = All {
                single: f32::NAN,
                double: f64::INFINITY,
                maybe,
                list: list.clone(),
            };
            let text = serde_json::to_string(&all).expect("writes");
            let back: All = serde_json::from_str(&text).expect("reads");
            assert_eq!(bits(&all), bits(&back), "{text}");
        }
    }

    #[test]
    fn other_words_and_numbers_beyond_are_refused() {
        for single in ["\"Infinity\"", "1e300", "[]", "true"] {
            let text = format!("{{\"single\":{single},\"double\":1,\"maybe\":1,\"list\":[]}}");
            assert!(serde_json::from_str::<All>(&text).is_err(), "{text}");
        }
    }
}
