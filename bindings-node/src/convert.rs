//! Converts JavaScript values to options of the core, and errors of the core to plain objects.
//!
//! It checks the types of values only: the core decides which values are valid. `errors.js` converts the plain
//! objects to JavaScript errors. Most other modules of this crate call it.

use napi::bindgen_prelude::{Either, FromNapiValue, JsObjectValue, Object, Unknown};
use napi::{JsString, JsValue, KeyCollectionMode, KeyConversion, KeyFilter, Result, ValueType};
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
    pub reason: Option<String>,
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
            reason: error.reason().map(str::to_owned),
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

/// Converts a value, or returns `None` if it is `undefined`.
pub(crate) fn given(given: Unknown<'_>) -> Result<Option<OptionValue>> {
    defined(given)?.map(value).transpose()
}

/// Returns the value, or `None` if it is `undefined`.
fn defined(given: Unknown<'_>) -> Result<Option<Unknown<'_>>> {
    Ok((given.get_type()? != ValueType::Undefined).then_some(given))
}

/// Returns the names and values of an options object, without those that are `undefined`; none if there is no object.
pub(crate) fn values(options: Option<Object<'_>>) -> Result<Vec<(String, OptionValue)>> {
    let Some(options) = options else { return Ok(Vec::new()) };
    let properties = properties(&options)?.into_iter();
    // No option has a name with lone surrogates, so the core refuses it in any case.
    let option = |(name, given): (Option<String>, _)| {
        Ok((name.unwrap_or_else(|| char::REPLACEMENT_CHARACTER.into()), value(given)?))
    };
    properties.map(option).collect()
}

/// Returns the names and values of an object's own properties, without those that are `undefined`. A name is `None` if it
/// has lone surrogates.
fn properties<'a>(object: &'a Object<'_>) -> Result<Vec<(Option<String>, Unknown<'a>)>> {
    let names = object.get_all_property_names(
        KeyCollectionMode::OwnOnly,
        KeyFilter::Enumerable,
        KeyConversion::NumbersToStrings,
    )?;
    let mut properties = Vec::new();
    for index in 0..names.get_array_length_unchecked()? {
        // Names are looked up as values: a C string would end at a zero.
        let name: Unknown<'_> = names.get_element(index)?;
        if name.get_type()? == ValueType::Symbol {
            continue;
        }
        if let Some(given) = defined(object.get_property(name)?)? {
            properties.push((text(name)?, given));
        }
    }
    Ok(properties)
}

/// Converts a JavaScript value to an option value. The core decides whether it is valid.
pub(crate) fn value(given: Unknown<'_>) -> Result<OptionValue> {
    if !given.is_array()? {
        return match plain(given)? {
            Some(object) => map(&object),
            None => item(given),
        };
    }
    let array: Object<'_> = convert(given)?;
    let items = (0..array.get_array_length()?).map(|index| item(array.get_element(index)?));
    Ok(OptionValue::List(items.collect::<Result<_>>()?))
}

/// Returns the object if it has no class of its own.
fn plain(given: Unknown<'_>) -> Result<Option<Object<'_>>> {
    if given.get_type()? != ValueType::Object || given.is_buffer()? {
        return Ok(None);
    }
    let object = convert(given)?;
    Ok(class(&object)?.is_none_or(|class| class == "Object").then_some(object))
}

/// An object with a name that is not Unicode text, as an error message calls it.
const NOT_NAMES: &str = "an object whose property names contain lone surrogates";

/// Converts a plain object. A property that is `undefined` is not set.
fn map(object: &Object<'_>) -> Result<OptionValue> {
    let mut values = Vec::new();
    for (name, given) in properties(object)? {
        match name {
            Some(name) => values.push((name, item(given)?)),
            None => return Ok(OptionValue::Other(NOT_NAMES.to_owned())),
        }
    }
    Ok(OptionValue::Map(values))
}

/// Converts a value that may be an item of an array or of an object. The items of an inner array are not converted: an
/// array may be an item of itself.
pub(crate) fn item(given: Unknown<'_>) -> Result<OptionValue> {
    Ok(match given.get_type()? {
        ValueType::Undefined => OptionValue::Undefined,
        ValueType::Null => OptionValue::Null,
        ValueType::Boolean => OptionValue::Bool(convert(given)?),
        ValueType::Number => OptionValue::Number(convert(given)?),
        ValueType::String => text(given)?.map_or(OptionValue::NotUnicode, OptionValue::Text),
        _ => OptionValue::Other(kind(given)?),
    })
}

/// Returns a value's type as an error message calls it, such as `an object of class Redis`.
fn kind(given: Unknown<'_>) -> Result<String> {
    Ok(match given.get_type()? {
        ValueType::Object if given.is_array()? => "an array".to_owned(),
        ValueType::Object if given.is_buffer()? => "a Buffer (call .toString() first)".to_owned(),
        ValueType::Object => match class(&convert(given)?)? {
            Some(class) if class != "Object" => format!("an object of class {class}"),
            _ => "an object".to_owned(),
        },
        ValueType::Function => "a function".to_owned(),
        ValueType::BigInt => "a bigint".to_owned(),
        _ => "a symbol".to_owned(),
    })
}

/// Returns the name of an object's class; `None` if it has none.
fn class(object: &Object<'_>) -> Result<Option<String>> {
    let prototype: Unknown<'_> = object.get_prototype()?;
    if prototype.get_type()? != ValueType::Object {
        return Ok(None);
    }
    let constructor: Unknown<'_> =
        convert::<Object<'_>>(prototype)?.get_named_property("constructor")?;
    if constructor.get_type()? != ValueType::Function {
        return Ok(None);
    }
    let name: Unknown<'_> = convert::<Object<'_>>(constructor)?.get_named_property("name")?;
    Ok(if name.get_type()? == ValueType::String { text(name)? } else { None })
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
