//! Converts JavaScript values to options of the core, and errors of the core to plain objects.
//!
//! It checks the types of values only: the core decides which values are valid. `index.js` converts the plain
//! objects to JavaScript errors. Called by `lib.rs`.

use napi::bindgen_prelude::{Array, Either, FromNapiValue, JsObjectValue, Object, Unknown};
use napi::{JsString, JsValue, Result, ValueType};
use napi_derive::napi;
use quorlock::{Error, OptionValue};

/// An error of the core, as a plain object.
#[napi(object)]
pub struct Failure {
    pub code: String,
    pub class: String,
    pub message: String,
    pub resources: Vec<String>,
    pub nodes: Vec<NodeReport>,
    pub holder: Option<String>,
}

/// The outcome of an operation at one node.
#[napi(object)]
pub struct NodeReport {
    pub address: String,
    pub outcome: String,
    pub detail: String,
}

impl From<&quorlock::NodeReport> for NodeReport {
    fn from(report: &quorlock::NodeReport) -> Self {
        Self {
            address: report.address.clone(),
            outcome: report.outcome.as_str().to_owned(),
            detail: report.detail.clone(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            code: error.code().as_str().to_owned(),
            class: error.code().class().to_owned(),
            // Without the nodes' addresses, because web frameworks send the message to their clients.
            message: error.summary(),
            resources: error.resources().to_vec(),
            nodes: error.nodes().iter().map(NodeReport::from).collect(),
            holder: error.holder().map(str::to_owned),
        }
    }
}

/// Returns the value, or the error as a plain object for JavaScript.
pub(crate) fn settle<T>(result: quorlock::Result<T>) -> Either<T, Failure> {
    match result {
        Ok(value) => Either::A(value),
        Err(error) => Either::B(error.into()),
    }
}

/// Returns the value, or `None` if it is `undefined`.
pub(crate) fn given(given: Unknown<'_>) -> Result<Option<Unknown<'_>>> {
    Ok((given.get_type()? != ValueType::Undefined).then_some(given))
}

/// Returns the names and values of an options object, without those that are `undefined`.
pub(crate) fn values(options: Object<'_>) -> Result<Vec<(String, OptionValue)>> {
    let mut values = Vec::new();
    for name in Object::keys(&options)? {
        if let Some(given) = given(options.get_named_property(&name)?)? {
            values.push((name, value(given)?));
        }
    }
    Ok(values)
}

/// Converts a JavaScript value to an option value. The core decides whether it is valid.
pub(crate) fn value(given: Unknown<'_>) -> Result<OptionValue> {
    let name = match given.get_type()? {
        ValueType::Null => return Ok(OptionValue::Null),
        ValueType::Number => return Ok(OptionValue::Number(convert(given)?)),
        ValueType::String => match text(given)? {
            Some(text) => return Ok(OptionValue::Text(text)),
            None => "string with lone surrogates",
        },
        ValueType::Object if given.is_array()? => match pair(&convert(given)?)? {
            Some((first, second)) => return Ok(OptionValue::Pair(first, second)),
            None => "Array",
        },
        ValueType::Boolean => return Ok(OptionValue::Bool(convert(given)?)),
        ValueType::BigInt => "bigint",
        ValueType::Function => "function",
        ValueType::Symbol => "symbol",
        _ => "object",
    };
    Ok(OptionValue::Other(name.to_owned()))
}

fn pair(array: &Array<'_>) -> Result<Option<(f64, f64)>> {
    if array.len() != 2 {
        return Ok(None);
    }
    let number = |index| -> Result<Option<f64>> {
        match array.get::<Unknown<'_>>(index)? {
            Some(item) if item.get_type()? == ValueType::Number => Ok(Some(convert(item)?)),
            _ => Ok(None),
        }
    };
    Ok(number(0)?.zip(number(1)?))
}

/// Returns the strings of an array; `None` if it is not an array, or an item is not a well-formed string.
pub(crate) fn texts(given: Unknown<'_>) -> Result<Option<Vec<String>>> {
    if !given.is_array()? {
        return Ok(None);
    }
    let array: Array<'_> = convert(given)?;
    let mut texts = Vec::new();
    for index in 0..array.len() {
        match array.get::<Unknown<'_>>(index)? {
            Some(item) if item.get_type()? == ValueType::String => match text(item)? {
                Some(text) => texts.push(text),
                None => return Ok(None),
            },
            _ => return Ok(None),
        }
    }
    Ok(Some(texts))
}

/// Returns a string, or `None` if it has lone surrogates. Replacing them could make two strings equal.
pub(crate) fn text(given: Unknown<'_>) -> Result<Option<String>> {
    let units = convert::<JsString<'_>>(given)?.into_utf16()?;
    // The last code unit is a terminating zero.
    let units = units.as_slice().split_last().map_or(&[][..], |(_, units)| units);
    Ok(String::from_utf16(units).ok())
}

pub(crate) fn convert<T: FromNapiValue>(given: Unknown<'_>) -> Result<T> {
    T::from_unknown(given)
}
